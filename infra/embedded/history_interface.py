"""ClickHouse's HTTP interface, as far as `clickhouse-connect` uses it, over the embedded engine.

Taken: `GET /ping`, queries by `query` parameter, body or both, form fields, `database`,
`default_format`, `query_id`, `param_*`, every setting as a parameter, request bodies in gzip, lz4
or zstd, `X-ClickHouse-*` headers. Results are sent whole, uncompressed (on loopback that only
costs CPU), with Content-Length; so an error is never found in the middle of a result.

Not taken: sessions (`session_id` is ignored: settings come with each request), external data
files, the native block compression (`compress`, `decompress`), progress headers, users and roles.
A GET is read-only, as with the server. Two differences to the server remain: a result without rows
is an empty body in Native (the client then knows no column names), and several statements in one
text are run one after another.
"""

import base64
import email.parser
import email.policy
import hmac
import itertools
import json
import os
import sys
import zlib
from collections.abc import Mapping
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from infra.embedded.history_engine import Call, ClickHouseError, HistoryEngine, Outcome
from infra.embedded.history_http import Request, Response
from infra.embedded.history_sql import output_format

try:
    import lz4.frame as lz4_frame  # type: ignore[import-untyped]  # lz4 ships none
except ImportError:  # clickhouse-connect brings it where it uses it
    lz4_frame = None

# Parameters of the transport, which are no settings of the engine.
_TRANSPORT_PARAMETERS = frozenset(
    (
        "query", "database", "default_format", "query_id", "user", "password", "quota_key", "role",
        "session_id", "session_timeout", "session_check", "wait_end_of_query", "buffer_size",
        "stacktrace", "client_protocol_version", "compress", "decompress",
    )
)  # fmt: skip
_PARAMETER_PREFIX = "param_"

_NOT_IMPLEMENTED = 48
_AUTHENTICATION_FAILED = 516
_UNKNOWN_COMPRESSION = 89
_CANNOT_DECOMPRESS = 271
_TOO_LARGE = 307

# The server's own table, for the codes that queries of ours can meet; all others are 500.
_STATUS_OF_CODE: Mapping[int, int] = {
    **dict.fromkeys((6, 26, 27, 33, 36, 38, 41, 42, 43, 44, 53, 62, 69, 70, 72, 117, 130), 400),
    **dict.fromkeys((16, 46, 47, 50, 60, 73, 81, 115), 404),
    **dict.fromkeys((164, 497), 403),
    _AUTHENTICATION_FAILED: 403,
    159: 408,
    _TOO_LARGE: 413,
    _NOT_IMPLEMENTED: 501,
    202: 503,
}


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class HistoryInterface:
    """Turns requests into calls of the engine, and outcomes into responses."""

    def __init__(self, engine: HistoryEngine, password: str, body_bytes_max: int) -> None:
        """An empty password lets everybody in."""
        self._engine = engine
        self._password = password
        self._body_bytes_max = body_bytes_max
        self._query_ids = (f"history-{os.getpid()}-{n}" for n in itertools.count(1))

    def answer(self, request: Request) -> Response:
        """Answer one request; never raises."""
        if request.path == "/ping":
            return Response(200, {"Content-Type": "text/plain"}, b"Ok.\n")
        query_id = request.params.get("query_id") or next(self._query_ids)
        try:
            self._authenticate(request)
            call = self._call(request)
            return self._result(call, self._engine.run(call), query_id)
        except ClickHouseError as error:
            return self._failure(error, query_id)

    def _authenticate(self, request: Request) -> None:
        if not self._password:
            return
        given = request.headers.get("x-clickhouse-key") or request.params.get("password") or ""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            given = _basic_password(credentials)
        if not hmac.compare_digest(given.encode(), self._password.encode()):
            raise ClickHouseError(
                _AUTHENTICATION_FAILED,
                "default: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)",
            )

    def _call(self, request: Request) -> Call:
        params, body = request.params, self._body(request)
        content_type = request.headers.get("content-type", "")
        if content_type.startswith("multipart/form-data"):
            params, body = {**params, **_form_fields(content_type, body)}, b""
        if params.get("compress", "0") != "0" or params.get("decompress", "0") != "0":
            raise ClickHouseError(
                _NOT_IMPLEMENTED, "compress and decompress are not supported. (NOT_IMPLEMENTED)"
            )
        query = params.get("query", "").encode()
        default = request.headers.get("x-clickhouse-format") or params.get("default_format")
        return Call(
            query + b"\n" + body if query and body else query or body,
            default or "TabSeparated",
            _settings(request.method, params, request.headers),
            {
                name.removeprefix(_PARAMETER_PREFIX): value
                for name, value in params.items()
                if name.startswith(_PARAMETER_PREFIX)
            },
        )

    def _body(self, request: Request) -> bytes:
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding == "identity":
            return request.body
        return _decompressed(request.body, encoding, self._body_bytes_max)

    def _result(self, call: Call, outcome: Outcome, query_id: str) -> Response:
        summary = {
            "read_rows": outcome.read_rows,
            "read_bytes": outcome.read_bytes,
            "written_rows": outcome.written_rows,
            "written_bytes": outcome.written_bytes,
            "total_rows_to_read": outcome.read_rows,
            "result_rows": outcome.written_rows,
            "result_bytes": len(outcome.body),
            "elapsed_ns": int(outcome.elapsed_s * 1e9),
        }
        headers = {
            "Content-Type": "application/octet-stream",
            "X-ClickHouse-Format": output_format(call.text, call.output_format),
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Summary": json.dumps({k: str(v) for k, v in summary.items()}),
            "X-ClickHouse-Timezone": self._engine.timezone,
        }
        return Response(200, headers, outcome.body)

    def _failure(self, error: ClickHouseError, query_id: str) -> Response:
        text = (
            f"Code: {error.code}. DB::Exception: {error}"
            f" (version {self._engine.version} (embedded build))\n"
        )
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "X-ClickHouse-Exception-Code": str(error.code),
            "X-ClickHouse-Query-Id": query_id,
        }
        return Response(_STATUS_OF_CODE.get(error.code, 500), headers, text.encode())


def _settings(method: str, params: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name: value
        for name, value in params.items()
        if name not in _TRANSPORT_PARAMETERS and not name.startswith(_PARAMETER_PREFIX)
    }
    database = params.get("database") or headers.get("x-clickhouse-database")
    if database:
        settings["database"] = database
    if method != "POST":
        settings.setdefault("readonly", "1")
    return settings


def _basic_password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials).decode().partition(":")[2]
    except ValueError:
        return ""


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a form; files (external data) are refused."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    fields: dict[str, str] = {}
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if part.get_filename() is not None or not isinstance(name, str):
            raise ClickHouseError(
                _NOT_IMPLEMENTED, "External data is not supported. (NOT_IMPLEMENTED)"
            )
        payload = part.get_payload(decode=True)
        fields[name] = payload.decode() if isinstance(payload, bytes) else ""
    return fields


def _decompressed(body: bytes, encoding: str, bytes_max: int) -> bytes:
    decompressor: _Decompressor
    if encoding == "gzip":
        decompressor = zlib.decompressobj(wbits=31)
    elif encoding == "zstd":
        decompressor = zstd.ZstdDecompressor()
    elif encoding == "lz4" and lz4_frame is not None:
        decompressor = lz4_frame.LZ4FrameDecompressor()
    else:
        raise ClickHouseError(
            _UNKNOWN_COMPRESSION,
            f"Unknown compression method: {encoding}. (UNKNOWN_COMPRESSION_METHOD)",
        )
    try:
        plain = decompressor.decompress(body, bytes_max + 1)
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
        raise ClickHouseError(
            _CANNOT_DECOMPRESS, f"Cannot decompress the body: {error}. (CANNOT_DECOMPRESS)"
        ) from error
    if len(plain) > bytes_max:
        raise ClickHouseError(
            _TOO_LARGE, f"The body is larger than {bytes_max} bytes. (TOO_MANY_BYTES)"
        )
    return plain
