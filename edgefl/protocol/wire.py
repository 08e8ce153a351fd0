"""Deterministic CBOR (RFC 8949, section 4.2) to and from bytes, and strict reading of decoded maps.

A peer's bytes can raise nothing but `WireError`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import cbor2

from edgefl.errors import WireError

WireValue: TypeAlias = (
    "int | float | str | bytes | bool | Sequence[WireValue] | Mapping[int, WireValue] | None"
)
Body: TypeAlias = Mapping[int, WireValue]

MAX_DEPTH = 8
MAX_ITEMS = 1 << 17
"""In one message: each costs far more time and memory than its one byte."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Heads of CBOR items. Source: RFC 8949, section 3.
_MAJOR_BYTES, _MAJOR_TEXT, _MAJOR_LIST, _MAJOR_MAP, _MAJOR_TAG = 2, 3, 4, 5, 6
_FIRST_LONG_ARGUMENT, _LAST_LONG_ARGUMENT = 24, 27


def encode(value: WireValue) -> bytes:
    """Return the one deterministic encoding of `value`."""
    return cbor2.dumps(value, canonical=True)


def digest(value: WireValue) -> bytes:
    """Return the SHA-256 of the deterministic encoding."""
    return hashlib.sha256(encode(value)).digest()


def decode(payload: bytes) -> WireValue:
    """Decode bytes from a peer.

    Raises:
        WireError: The bytes are no CBOR, use a tag or an unexpected type, nest too deeply, carry
            trailing bytes, or are not the deterministic encoding (two encodings of one message
            could be told apart by signatures).
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise WireError(
            "E-WIRE-SIZE", f"at most {MAX_MESSAGE_BYTES} bytes", f"{len(payload)} bytes"
        )
    _require_plain_items(payload)
    try:
        value = cbor2.loads(payload)
        _require_plain(value, MAX_DEPTH)
        canonical = cbor2.dumps(value, canonical=True)
    except WireError:
        raise
    except (Exception, RecursionError) as error:  # noqa: BLE001 - the decoder's own failures
        name = type(error).__name__
        raise WireError("E-WIRE-CBOR", "deterministic CBOR", name) from None
    if canonical != payload:
        raise WireError(
            "E-WIRE-CANONICAL", "the deterministic encoding", "another encoding of the same value"
        )
    return value  # type: ignore[no-any-return]


def decode_stored(content: bytes) -> WireValue:
    """Decode bytes that came from `encode` and that a checksum has guarded since.

    Several times as fast as `decode`, which trusts nobody.

    Raises:
        WireError: They are no CBOR.
    """
    try:
        return cbor2.loads(content)  # type: ignore[no-any-return]
    except (Exception, RecursionError) as error:  # noqa: BLE001 - the decoder's own failures
        raise WireError("E-WIRE-CBOR", "stored CBOR", type(error).__name__) from None


def _require_plain_items(payload: bytes) -> None:
    """Walk the encoded items without building any of them.

    The decoder follows tags: shared references can make a few hundred bytes unfold to more nodes
    than could ever be visited, and big numbers to integers that cannot be printed. Hence tags,
    indefinite lengths, lengths beyond the payload and deep nesting are refused before it runs.
    """
    position = 0
    item_count = 1
    missing_by_level = [1]
    while missing_by_level:
        if missing_by_level[-1] == 0:
            missing_by_level.pop()
            continue
        if len(missing_by_level) > MAX_DEPTH:
            raise WireError("E-WIRE-DEPTH", f"nesting of at most {MAX_DEPTH}", "deeper nesting")
        missing_by_level[-1] -= 1
        major, argument, position = _read_head(payload, position)
        if major in (_MAJOR_BYTES, _MAJOR_TEXT):
            _require_left(payload, position, argument)
            position += argument
        elif major in (_MAJOR_LIST, _MAJOR_MAP):
            items = argument * (2 if major == _MAJOR_MAP else 1)
            _require_left(payload, position, items)
            item_count += items
            if item_count > MAX_ITEMS:
                raise WireError("E-WIRE-ITEMS", f"at most {MAX_ITEMS} items", f"{item_count} items")
            missing_by_level.append(items)
        elif major == _MAJOR_TAG:
            raise WireError("E-WIRE-TYPE", "plain CBOR types", "a tag")


def _read_head(payload: bytes, position: int) -> tuple[int, int, int]:
    """Return major type, argument, and the position after the head of the item at `position`."""
    _require_left(payload, position, 1)
    major, short = payload[position] >> 5, payload[position] & 31
    position += 1
    if short < _FIRST_LONG_ARGUMENT:
        return major, short, position
    if short > _LAST_LONG_ARGUMENT:
        raise WireError("E-WIRE-CBOR", "items of definite length", "another kind of item")
    size_bytes = 1 << (short - _FIRST_LONG_ARGUMENT)
    _require_left(payload, position, size_bytes)
    end = position + size_bytes
    return major, int.from_bytes(payload[position:end], "big"), end


def _require_left(payload: bytes, position: int, size_bytes: int) -> None:
    left_bytes = len(payload) - position
    if size_bytes > left_bytes:
        raise WireError("E-WIRE-CBOR", f"{size_bytes} more bytes", f"{left_bytes} bytes")


def _require_plain(value: object, depth_left: int) -> None:
    if depth_left == 0:
        raise WireError("E-WIRE-DEPTH", f"nesting of at most {MAX_DEPTH}", "deeper nesting")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not int:
                raise WireError("E-WIRE-KEY", "integer map keys", type(key).__name__)
            _require_plain(item, depth_left - 1)
    elif isinstance(value, list):
        for item in value:
            _require_plain(item, depth_left - 1)
    elif value is not None and type(value) not in (int, float, str, bytes, bool):
        raise WireError("E-WIRE-TYPE", "plain CBOR types", type(value).__name__)


def as_body(value: WireValue) -> Body:
    """Return `value` as a map with integer keys."""
    if not isinstance(value, Mapping):
        raise WireError("E-WIRE-TYPE", "a map", type(value).__name__)
    return value


def as_list(value: WireValue, max_items: int) -> Sequence[WireValue]:
    """Return `value` as a list of at most `max_items`."""
    if not isinstance(value, list) or len(value) > max_items:
        raise WireError("E-WIRE-TYPE", f"a list of at most {max_items} items", _describe(value))
    return value


def as_int(value: WireValue, low: int, high: int) -> int:
    """Return `value` as an integer in [low, high]."""
    if type(value) is not int or not low <= value <= high:
        raise WireError("E-WIRE-INT", f"an integer from {low} to {high}", _describe(value))
    return value


def as_bytes(
    value: WireValue, size_bytes: int | None = None, max_bytes: int = MAX_MESSAGE_BYTES
) -> bytes:
    """Return `value` as bytes of exactly `size_bytes`, or of at most `max_bytes`."""
    if (
        type(value) is not bytes
        or (size_bytes is not None and len(value) != size_bytes)
        or len(value) > max_bytes
    ):
        wanted = f"{size_bytes} bytes" if size_bytes is not None else f"at most {max_bytes} bytes"
        raise WireError("E-WIRE-BYTES", wanted, _describe(value))
    return value


def as_text(value: WireValue, max_chars: int = 200) -> str:
    """Return `value` as text of at most `max_chars` characters."""
    if type(value) is not str or len(value) > max_chars:
        raise WireError("E-WIRE-TEXT", f"text of at most {max_chars} characters", _describe(value))
    return value


def as_float(value: WireValue) -> float:
    """Return `value` as a finite float; whole numbers count."""
    if type(value) not in (int, float) or value != value or value in (float("inf"), float("-inf")):
        raise WireError("E-WIRE-FLOAT", "a finite number", _describe(value))
    return float(value)  # type: ignore[arg-type]


def field(body: Body, key: int) -> WireValue:
    """Return the value under `key`, which must be there."""
    if key not in body:
        raise WireError("E-WIRE-FIELD", f"field {key}", "a message without it")
    return body[key]


def encode_bitmap(members: Sequence[bool]) -> bytes:
    """Pack truth values into bytes, first member in the lowest bit of the first byte."""
    packed = bytearray((len(members) + 7) // 8)
    for index, is_member in enumerate(members):
        if is_member:
            packed[index // 8] |= 1 << (index % 8)
    return bytes(packed)


def decode_bitmap(packed: bytes, size: int) -> tuple[bool, ...]:
    """Return `size` truth values; spare bits must be zero."""
    if len(packed) != (size + 7) // 8:
        raise WireError("E-WIRE-BITMAP", f"{(size + 7) // 8} bytes", f"{len(packed)} bytes")
    members = tuple(bool(packed[index // 8] >> (index % 8) & 1) for index in range(size))
    if encode_bitmap(members) != packed:
        raise WireError("E-WIRE-BITMAP", "zero spare bits", "set spare bits")
    return members


def _describe(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)[:40]
    if isinstance(value, bytes | str | list):
        return f"{type(value).__name__} of length {len(value)}"
    return type(value).__name__
