"""`PayloadStore` on obstore: a folder, S3 and what speaks like it, Google Cloud Storage, Azure.

A store that was never written to has no mark. So a folder that is not mounted, another bucket or
another prefix is a store that is away, and none of its objects is said to be missing.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store, from_url

from commandside.payload_port import PayloadObject, StoreAway

FOLDER: Final = "file"
MARK: Final = "tocsin-payloads"
"""An object of every store that was written to."""
THREADS: Final = 8
"""Objects on their way to or from the store at once, for one caller."""
TIMEOUT_S: Final = 5
CONNECT_TIMEOUT_S: Final = 2
RETRIES: Final = 2
RETRY_S: Final = 5
"""A request that failed is sent again for so long; so 10 s at most for an object."""
_OTHER: Final = "payloads.store {} is not the one that was written to"
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_Store = AzureStore | GCSStore | LocalStore | S3Store


class ObjectPayloadStore:
    """The port `PayloadStore`; nothing is opened before the first use."""

    def __init__(self, url: str, endpoint: str = "") -> None:
        """Use the store at a URL (`settings.Payloads`), at an endpoint that speaks S3 if given.

        Credentials are those that the cloud's own tools would find in the environment.
        """
        self._url, self._endpoint = url, endpoint
        self._folder = folder_of(url)
        self._store: _Store | None = None
        self._marked = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="payloads")

    def put(self, objects: Sequence[tuple[PayloadObject, bytes]]) -> None:
        """Write objects; on return they are durable."""
        if not self._marked:
            self._call(self._write, (MARK, b"Payloads of Tocsin; see payloads.store.\n"))
            self._marked = True
        elif self._folder is not None and not (self._folder / MARK).exists():
            # Not mounted any more: what is written into the empty place would be lost later.
            raise StoreAway(_OTHER.format(self._url))
        self._all(self._write, [(path_of(at), data) for at, data in objects])

    def get(self, wanted: Sequence[PayloadObject]) -> list[bytes | None]:
        """Return the bytes of each, None where it is not there; another length is read as empty."""
        found = self._all(self._read, wanted)
        if None in found and self._call(self._size, MARK) is None:
            raise StoreAway(_OTHER.format(self._url))
        return found

    def delete(self, objects: Sequence[PayloadObject]) -> None:
        """Delete objects; one that is not there is deleted."""
        self._all(self._remove, [path_of(at) for at in objects])

    def close(self) -> None:
        """Wait for nothing; what is on its way ends within its bounds."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ one object

    def _write(self, item: tuple[str, bytes]) -> None:
        path, data = item
        obstore.put(self._opened(), path, data)
        if self._folder is not None:
            # The library renames a whole file into its place, but does not wait for the disk.
            _sync(self._folder / path, self._folder)

    def _read(self, at: PayloadObject) -> bytes | None:
        try:
            result = obstore.get(self._opened(), path_of(at))
        except FileNotFoundError:
            return None
        return bytes(result.bytes()) if result.meta["size"] == at.ref.size else b""

    def _size(self, path: str) -> int | None:
        try:
            return obstore.head(self._opened(), path)["size"]
        except FileNotFoundError:
            return None

    def _remove(self, path: str) -> None:
        try:
            obstore.delete(self._opened(), path)
        except FileNotFoundError:
            return

    def _opened(self) -> _Store:
        """Return the store; a folder is made where there is none, for its owner alone."""
        if self._store is None and self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = LocalStore(self._folder)
        elif self._store is None:
            self._store = _in_a_cloud(self._url, self._endpoint)
        return self._store

    # ------------------------------------------------------------ several

    def _all(self, work: Callable[[_Given], _Found], items: Sequence[_Given]) -> list[_Found]:
        if len(items) == 1:
            return [self._call(work, items[0])]
        return list(self._threads.map(lambda item: self._call(work, item), items))

    def _call(self, work: Callable[[_Given], _Found], item: _Given) -> _Found:
        try:
            return work(item)
        except (BaseError, OSError, ValueError) as error:
            raise StoreAway(f"payloads.store {self._url}: {_first_line(error)}") from error


def folder_of(url: str) -> Path | None:
    """Return the folder that a store is, None for a bucket."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == FOLDER else None


def _in_a_cloud(url: str, endpoint: str) -> _Store:
    more: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    store = from_url(
        url,
        client_options={
            "timeout": timedelta(seconds=TIMEOUT_S),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "allow_http": endpoint.startswith("http:"),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        **more,
    )
    assert isinstance(store, AzureStore | GCSStore | S3Store)
    return store


def path_of(at: PayloadObject) -> str:
    """Return an object's key: by tenant, so that an operator can see whose it is."""
    name = at.ref.sha256.hex()
    return f"{at.tenant_id.hex()}/{name[:2]}/{name}"


def _sync(path: Path, top: Path) -> None:
    """Wait until a file and the folders that lead to it are on the disk."""
    places = [path, *path.parents]
    for place in places[: places.index(top) + 1]:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _first_line(error: Exception) -> str:
    """Return what an error says, without the library's own account of it."""
    return str(error).split("\n", 1)[0][:300] or type(error).__name__
