"""Files that a user named are read whole and within bounds; nothing else is waited for."""

import os
import socket
from pathlib import Path

import pytest

from edgefl.errors import ConfigError
from edgefl.storage.files import read_file, require_file

pytestmark = pytest.mark.timeout(10)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    require_file(path)
    assert read_file(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(path, 4)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "absent", 4)


def test_a_link_to_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    require_file(tmp_path / "link")
    assert read_file(tmp_path / "link", 1) == b"1"


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to(tmp_path / "pipe")
    before = open_descriptors()
    for path, kind in (
        (tmp_path / "pipe", "a pipe"),
        (tmp_path / "to-pipe", "a pipe"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a device of the system"),
    ):
        with pytest.raises(OSError, match=f"{kind}, not a file"):
            read_file(path, 100)
        with pytest.raises(ConfigError, match=f"E-FILE-KIND.*found {kind}"):
            require_file(path)
    assert open_descriptors() == before


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ConfigError, match="found a socket"):
            require_file(Path("socket"))
        with pytest.raises(OSError):  # noqa: PT011 - the system's own words
            read_file(Path("socket"), 100)


def test_what_is_not_there_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    require_file(tmp_path / "absent")
    require_file(Path("zero\0byte"))
