"""Zip archives that are the same bytes every time and cannot grow when read.

Entries are stored, never compressed: an archive holds no more than its own size, which rules out
zip bombs, and the bytes do not depend on the version of zlib.
"""

import io
import zipfile
from collections.abc import Mapping

# The earliest date the format can hold: a real one would make two builds of one bundle differ.
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_READABLE_FILE = 0o100644 << 16


def pack_stored(entries: Mapping[str, bytes]) -> bytes:
    """Write the entries in the given order.

    Args:
        entries: Content by name.

    Returns:
        The archive; equal input gives equal bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, date_time=_FIXED_DATE)
            info.create_system = _UNIX
            info.external_attr = _READABLE_FILE
            archive.writestr(info, content)
    return buffer.getvalue()


def unpack_stored(archive_bytes: bytes) -> dict[str, bytes]:
    """Read every entry of an archive made by `pack_stored`.

    Args:
        archive_bytes: The whole archive.

    Returns:
        Content by name.

    Raises:
        ValueError: Not a zip, damaged, an entry is compressed or encrypted, names repeat, or the
            entries claim more bytes than the archive has.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
            infos = archive.infolist()
            _refuse_growth(infos, len(archive_bytes))
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        message = f"not a readable zip archive ({error})"
        raise ValueError(message) from error


def _refuse_growth(infos: list[zipfile.ZipInfo], archive_size_bytes: int) -> None:
    names = [info.filename for info in infos]
    if len(set(names)) != len(names):
        message = "an entry name occurs twice"
        raise ValueError(message)
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            message = f"entry '{info.filename}' is compressed"
            raise ValueError(message)
    if sum(info.file_size for info in infos) > archive_size_bytes:
        message = "the entries claim more bytes than the archive has"
        raise ValueError(message)
