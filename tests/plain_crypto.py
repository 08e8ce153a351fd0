"""Plain, slow Python of what the core does with secrets, written from the standards for its tests.

Nothing here is constant-time or used outside tests.
"""

import hmac
from collections.abc import Iterator, Sequence
from hashlib import sha256

SHARE_FIELD = 2**61 - 1
CURVE_FIELD = 2**255 - 19
WORD = 2**32


def hkdf_32(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA256. Source: RFC 5869, section 2."""
    extracted = hmac.digest(salt or bytes(32), secret, sha256)
    return hmac.digest(extracted, info + b"\x01", sha256)


def x25519(scalar: bytes, u: bytes) -> bytes:
    """Multiply a point by a clamped scalar. Source: RFC 7748, section 5."""
    p = CURVE_FIELD
    number = int.from_bytes(scalar, "little") & (2**255 - 8) | 2**254
    x1 = (int.from_bytes(u, "little") & (2**255 - 1)) % p
    x2, z2, x3, z3 = 1, 0, x1, 1
    for position in range(254, -1, -1):
        bit = number >> position & 1
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        plus, minus = (x2 + z2) ** 2, (x2 - z2) ** 2
        across, along = (x3 - z3) * (x2 + z2), (x3 + z3) * (x2 - z2)
        x3, z3 = (across + along) ** 2 % p, x1 * (across - along) ** 2 % p
        difference = plus - minus
        x2, z2 = plus * minus % p, difference * (plus + 121665 * difference) % p
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


def x25519_public_key(scalar: bytes) -> bytes:
    """Return the public key of a scalar."""
    return x25519(scalar, (9).to_bytes(32, "little"))


def chacha20_rounds(key: bytes, last_words: bytes) -> tuple[list[int], list[int]]:
    """Return the state before and after the 20 rounds. Source: RFC 8439, section 2.3."""
    start = words_of(b"expand 32-byte k" + key + last_words)
    state = start.copy()
    for _ in range(10):
        for column in range(4):
            _quarter_round(state, *(column + 4 * row for row in range(4)))
        for column in range(4):
            _quarter_round(state, *(4 * row + (column + row) % 4 for row in range(4)))
    return start, state


def chacha20_blocks(key: bytes, nonce: bytes = bytes(12), counter: int = 0) -> Iterator[bytes]:
    """Yield the keystream block by block."""
    while True:
        start, state = chacha20_rounds(key, counter.to_bytes(4, "little") + nonce)
        yield bytes_of([(old + new) % WORD for old, new in zip(start, state, strict=True)])
        counter += 1


def chacha20_xor(key: bytes, nonce: bytes, counter: int, text: bytes) -> bytes:
    """Encrypt or decrypt with ChaCha20."""
    blocks = chacha20_blocks(key, nonce, counter)
    stream = b"".join(next(blocks) for _ in range(-(-len(text) // 64)))
    return bytes(byte ^ key_byte for byte, key_byte in zip(text, stream, strict=False))


def poly1305(key: bytes, message: bytes) -> bytes:
    """Return the 16-byte tag. Source: RFC 8439, section 2.5."""
    clamp = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    r, s = int.from_bytes(key[:16], "little") & clamp, int.from_bytes(key[16:], "little")
    total = 0
    for start in range(0, len(message), 16):
        block = int.from_bytes(message[start : start + 16] + b"\x01", "little")
        total = (total + block) * r % (2**130 - 5)
    return ((total + s) % 2**128).to_bytes(16, "little")


def seal(key: bytes, nonce: bytes, plaintext: bytes, header: bytes) -> bytes:
    """Seal with XChaCha20-Poly1305, nonce first. Source: draft-irtf-cfrg-xchacha-03."""
    _, state = chacha20_rounds(key, nonce[:16])
    subkey, short_nonce = bytes_of(state[:4] + state[12:]), bytes(4) + nonce[16:]
    ciphertext = chacha20_xor(subkey, short_nonce, 1, plaintext)
    lengths = len(header).to_bytes(8, "little") + len(ciphertext).to_bytes(8, "little")
    authenticated = _padded(header) + _padded(ciphertext) + lengths
    one_time_key = next(chacha20_blocks(subkey, short_nonce))[:32]
    return nonce + ciphertext + poly1305(one_time_key, authenticated)


def coefficients(seed: bytes) -> Iterator[int]:
    """Yield the uniform elements that the seed's stream gives."""
    for block in chacha20_blocks(seed):
        for start in range(0, 64, 8):
            element = int.from_bytes(block[start : start + 8], "little") & SHARE_FIELD
            if element != SHARE_FIELD:
                yield element


def split_secrets(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], coefficient_seed: bytes
) -> list[list[bytes]]:
    """Return one list of shares per secret. Source: Shamir 1979, over 2^61 - 1."""
    stream = coefficients(coefficient_seed)
    lists = []
    for secret in secrets:
        number = int.from_bytes(secret, "little")
        rows = [[number >> 52 * limb & (2**52 - 1) for limb in range(5)]]
        rows += [[next(stream) for _ in range(5)] for _ in range(threshold - 1)]
        lists.append([b"".join(_values_at(rows, point)) for point in points])
    return lists


def words_of(text: bytes) -> list[int]:
    """Read 32-bit little-endian words."""
    return [int.from_bytes(text[i : i + 4], "little") for i in range(0, len(text), 4)]


def bytes_of(words: Sequence[int]) -> bytes:
    """Write 32-bit little-endian words."""
    return b"".join(word.to_bytes(4, "little") for word in words)


def _values_at(rows: Sequence[Sequence[int]], point: int) -> Iterator[bytes]:
    for limb in range(5):
        value = sum(row[limb] * point**degree for degree, row in enumerate(rows))
        yield (value % SHARE_FIELD).to_bytes(8, "little")


def _quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, target, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[first] = (state[first] + state[second]) % WORD
        mixed = state[target] ^ state[first]
        state[target] = (mixed << left | mixed >> (32 - left)) % WORD


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 16)
