"""Master keys in a file and in the environment keep the contract, and are refused in words."""

import base64
from pathlib import Path

import pytest

from infra.keys.local import LocalMaster, from_file, from_text
from infra.keys.port import MasterKeyError
from tests.contracts.master_key import MasterKeyContract


class TestFileMaster(MasterKeyContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def opened(self) -> LocalMaster:
        return from_file(self.folder / "master.key", create=True)

    def other(self) -> LocalMaster:
        return from_file(self.folder / "other.key", create=True)


class TestTextMaster(MasterKeyContract):
    def opened(self) -> LocalMaster:
        return from_text(base64.b64encode(bytes(range(32))).decode())

    def other(self) -> LocalMaster:
        return from_text(base64.b64encode(bytes(32)).decode())


def test_a_file_and_a_text_of_the_same_bytes_are_the_same_key(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    master = from_file(file, create=True)
    assert from_text(base64.b64encode(file.read_bytes()).decode()).name == master.name


def test_the_file_is_its_owners_alone_and_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    first = from_file(file, create=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert from_file(file, create=True).name == first.name
    file.chmod(0o640)
    with pytest.raises(MasterKeyError, match="chmod 600"):
        from_file(file)


def test_a_master_key_in_no_folder_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyError, match=r"No such file.*keys\.master_file"):
        from_file(tmp_path / "nowhere" / "master.key", create=True)


def test_a_file_of_another_length_is_refused_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    file.write_bytes(b"hunter2")
    file.chmod(0o600)
    with pytest.raises(MasterKeyError, match="7 bytes") as error:
        from_file(file)
    assert "hunter2" not in str(error.value)
