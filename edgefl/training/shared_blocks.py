"""Stores what several files of a bundle have in common once: the weights of frozen layers.

The training step, the whole model, its front part and the export template hold the same frozen
weights. An archive keeps each such block once in `shared.bin`, the files without it, and in
`shared.json` where it belongs: for each file a list of [position in the file without blocks,
offset in `shared.bin`, length], all in bytes. A file is put together only when it is asked for.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from edgefl.training.onnx.payloads import raw_payloads

SHARED_BIN = "shared.bin"
SHARED_TABLE = "shared.json"
_SMALLEST_BLOCK_BYTES = 4096
_Cut = tuple[int, int, int]


class SharedFiles(Mapping[str, bytes]):
    """Files by name, some of them in pieces.

    Args:
        entries: Content by name; without the blocks where `cuts` lists some.
        cuts: By file name: position in the entry, offset in `shared`, length; in order.
        shared: All blocks.
    """

    def __init__(
        self, entries: Mapping[str, bytes], cuts: Mapping[str, tuple[_Cut, ...]], shared: bytes
    ) -> None:
        """Keep the pieces as they are."""
        self._entries = entries
        self._cuts = cuts
        self._shared = memoryview(shared)

    def __getitem__(self, name: str) -> bytes:
        """Return a whole file."""
        if name not in self._cuts:
            return self._entries[name]
        return b"".join(self.pieces(name))

    def __iter__(self) -> Iterator[str]:
        """Return the files' names."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is such a file, without putting it together."""
        return name in self._entries

    def size_bytes(self, name: str) -> int:
        """Return a whole file's length."""
        blocks = sum(length for _, _, length in self._cuts.get(name, ()))
        return len(self._entries[name]) + blocks

    def sha256(self, name: str) -> str:
        """Return a whole file's hex digest."""
        digest = hashlib.sha256()
        for piece in self.pieces(name):
            digest.update(piece)
        return digest.hexdigest()

    def pieces(self, name: str) -> Iterator[memoryview]:
        """Yield a file's bytes piece by piece."""
        entry = memoryview(self._entries[name])
        position = 0
        for at, offset, length in self._cuts.get(name, ()):
            yield entry[position:at]
            yield self._shared[offset : offset + length]
            position = at
        yield entry[position:]


def share(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Take common blocks out of files.

    Args:
        files: Content by name; files named `*.onnx` are ONNX models.

    Returns:
        Entries for an archive, the same for the same files.
    """
    blocks = _common_blocks(files)
    if not blocks:
        return dict(files)
    offsets: dict[bytes, int] = {}
    end = 0
    for block in blocks:
        offsets[block] = end
        end += len(block)
    entries: dict[str, bytes] = {}
    table: dict[str, list[_Cut]] = {}
    for name, content in files.items():
        pieces: list[bytes] = []
        cuts: list[_Cut] = []
        position = length = 0
        for start, block in _found(content, blocks):
            pieces.append(content[position:start])
            length += start - position
            cuts.append((length, offsets[block], len(block)))
            position = start + len(block)
        entries[name] = b"".join([*pieces, content[position:]])
        if cuts:
            table[name] = cuts
    entries[SHARED_TABLE] = json.dumps(table, sort_keys=True).encode()
    entries[SHARED_BIN] = b"".join(blocks)
    return entries


def unshare(entries: dict[str, bytes], *, largest_bytes: int) -> SharedFiles:
    """Read an archive's entries, trusting nothing.

    Args:
        entries: As `share` gives them; the two of this module are taken out.
        largest_bytes: Bound of all files together.

    Raises:
        ValueError: A table that is malformed or points outside, or files that are too large.
    """
    shared = entries.pop(SHARED_BIN, b"")
    table_json = entries.pop(SHARED_TABLE, b"{}")
    try:
        table = json.loads(table_json)
    except (UnicodeDecodeError, RecursionError) as error:
        message = f"{SHARED_TABLE} is not JSON text"
        raise ValueError(message) from error
    if not isinstance(table, dict) or not set(table) <= set(entries):
        message = f"{SHARED_TABLE} names files that are not there"
        raise ValueError(message)
    cuts = {
        str(name): _parse_cuts(listed, len(entries[name]), len(shared))
        for name, listed in table.items()
    }
    files = SharedFiles(entries, cuts, shared)
    if sum(files.size_bytes(name) for name in files) > largest_bytes:
        message = f"files of more than {largest_bytes} bytes"
        raise ValueError(message)
    return files


def _parse_cuts(listed: object, entry_size: int, shared_size: int) -> tuple[_Cut, ...]:
    if not isinstance(listed, list):
        raise _wrong_table()
    cuts = [_parse_cut(entry) for entry in listed]
    positions = [0, *(at for at, _, _ in cuts), entry_size]
    is_ordered = all(before <= after for before, after in pairwise(positions))
    if not is_ordered or any(offset + length > shared_size for _, offset, length in cuts):
        raise _wrong_table()
    return tuple(cuts)


def _parse_cut(entry: object) -> _Cut:
    if not isinstance(entry, list) or len(entry) != 3:
        raise _wrong_table()
    at, offset, length = entry
    for number in (at, offset, length):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**40:
            raise _wrong_table()
    return at, offset, length


def _wrong_table() -> ValueError:
    return ValueError(f"{SHARED_TABLE} does not describe the files")


def _common_blocks(files: Mapping[str, bytes]) -> list[bytes]:
    """Return each large payload that occurs at least twice, in the order of its discovery."""
    candidates: dict[bytes, None] = {}
    for name, content in files.items():
        if name.endswith(".onnx"):
            for _, start, end in raw_payloads(content):
                if end - start >= _SMALLEST_BLOCK_BYTES:
                    candidates[content[start:end]] = None
    counts: Counter[bytes] = Counter()
    for content in files.values():
        counts.update(block for _, block in _found(content, candidates))
    return [block for block in candidates if counts[block] > 1]


def _found(content: bytes, blocks: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return where blocks lie in a file, in order; of those that overlap, the first."""
    places: list[tuple[int, bytes]] = []
    behind = 0
    for block in blocks:
        # Files mostly hold them in the same order.
        start = content.find(block, behind)
        if start < 0:
            start = content.find(block)
        if start >= 0:
            places.append((start, block))
            behind = start + len(block)
    kept: list[tuple[int, bytes]] = []
    end = 0
    for start, block in sorted(places, key=lambda place: place[0]):
        if start >= end:
            kept.append((start, block))
            end = start + len(block)
    return kept
