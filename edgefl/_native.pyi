"""Rust core: masks, sharing, keys, integer noise. Source of each algorithm: rust/edgefl-core.

Arrays are one-dimensional, contiguous and of the stated dtype in native byte order; nothing is
cast. Any object with such a buffer works; arrays are what type checkers see. d is the number of
coordinates. Each function works on its own copy without the GIL and writes the result back at the
end; after an error the caller's arrays are unchanged.

Every function raises `TypeError` for arguments of a wrong type and `ConfigError` for unusable
numbers and buffers. Further exceptions are named below.
"""

from collections.abc import Sequence
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHECK_COORDINATES",
    "MAX_CHUNK_BYTES",
    "SECRET_BYTES",
    "SHARE_BYTES",
    "AgreementKey",
    "CancelFlag",
    "EndpointEvent",
    "Mask",
    "MqttEndpoint",
    "RingSum",
    "Seed",
    "SigningKey",
    "StagedBlob",
    "UploadStage",
    "add_skellam_noise",
    "agreement_public_keys",
    "apply_masks",
    "backends",
    "check_coordinates",
    "combine_many",
    "combine_shares",
    "decode_sum",
    "encode_and_mask",
    "has_aes_hardware",
    "measure_backend",
    "open_many",
    "open_sealed",
    "pack",
    "quantize",
    "rotate",
    "seal",
    "seal_many",
    "selftest",
    "split_secret",
    "split_secrets",
    "unpack",
    "verify",
    "verify_many",
]

SHARE_BYTES: int
"""40: bytes of one Shamir share."""
SECRET_BYTES: int
"""32: bytes of a seed."""
CHECK_COORDINATES: int
"""4: check coordinates per vector."""
MAX_CHUNK_BYTES: int
"""122,880: bytes of the largest chunk of a transfer."""

@final
class Seed:
    """A 32-byte secret held and wiped by Rust. No repr of content, no pickling.

    `==` compares identity, never content.
    """

    @staticmethod
    def generate() -> Seed:
        """Draw from the operating system. Raises EnvironmentProblem where it gives nothing."""
    @staticmethod
    def from_bytes(secret: bytes) -> Seed:
        """Copy 32 bytes. Security: the caller's copy cannot be wiped."""
    def export_bytes(self) -> bytes:
        """Return the secret. Security: the copy cannot be wiped; only for sealing and storage."""
    def derive(self, salt: bytes, info: bytes) -> Seed:
        """Return HKDF-SHA256(this seed, salt, info). Source: RFC 5869."""
    def derive_many(self, salt: bytes, infos: Sequence[bytes]) -> list[Seed]:
        """Return what `derive` returns for each info, in one call."""
    def commitment(self, context: bytes) -> bytes:
        """Return SHA-256("edgefl/1 seed commitment", len(context) as u64 LE, context, seed)."""
    def __reduce__(self) -> NoReturn: ...

@final
class AgreementKey:
    """An X25519 secret key. Source: RFC 7748."""

    @staticmethod
    def from_seed(seed: Seed) -> AgreementKey:
        """Make the key whose scalar is the seed, clamped."""
    @property
    def public_key(self) -> bytes:
        """32 bytes."""
    def export_seed(self) -> Seed:
        """Return the seed that makes this key again."""
    def agree(self, peer_public_key: bytes, salt: bytes, info: bytes) -> Seed:
        """Return HKDF-SHA256(X25519 result, salt, info).

        Raises:
            RemoteProtocolError: E-PUBLIC-KEY, not 32 bytes or of small order.
        """
    def agree_many(
        self,
        peer_public_keys: Sequence[bytes],
        salt: bytes,
        infos: Sequence[bytes],
        threads: int = 1,
    ) -> list[Seed]:
        """Return what `agree` returns for each peer and its info, in one call.

        Args:
            peer_public_keys: 32 bytes each.
            salt: HKDF salt of all.
            infos: HKDF info of each.
            threads: 1 to 64; the result does not depend on it.

        Raises:
            RemoteProtocolError: E-PUBLIC-KEY with the index of the first refused key.
            EnvironmentProblem: E-THREAD-START, the system starts no thread.
        """
    def __reduce__(self) -> NoReturn: ...

@final
class SigningKey:
    """An Ed25519 secret key. Source: RFC 8032."""

    @staticmethod
    def from_seed(seed: Seed) -> SigningKey:
        """Make the key of this seed."""
    @property
    def public_key(self) -> bytes:
        """32 bytes."""
    def export_seed(self) -> Seed:
        """Return the seed that makes this key again."""
    def sign(self, message: bytes) -> bytes:
        """Return 64 bytes, always the same for one message."""
    def __reduce__(self) -> NoReturn: ...

def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Say whether an Ed25519 signature is right, strictly; malformed bytes give False."""

def verify_many(
    public_keys: Sequence[bytes], messages: Sequence[bytes], signatures: Sequence[bytes]
) -> list[bool]:
    """Return what `verify` returns for each; no batch equation, which would be less strict."""

def agreement_public_keys(seeds: Sequence[Seed]) -> list[bytes]:
    """Return the public key of `AgreementKey.from_seed(seed)` for each seed."""

def seal(
    key: Seed,
    plaintext: bytes,
    associated_data: bytes,
    insecure_nonce_seed: Seed | None = None,
) -> bytes:
    """Seal with XChaCha20-Poly1305: 24-byte nonce, ciphertext, 16-byte tag.

    The nonce comes from the operating system. Security: `insecure_nonce_seed` is for the seeded
    simulator alone; equal messages then give equal bytes.
    """

def open_sealed(key: Seed, sealed: bytes, associated_data: bytes) -> bytes:
    """Open a sealed message.

    Raises:
        RemoteProtocolError: E-SEALED, some byte of message, key or associated data is wrong.
    """

def seal_many(
    keys: Sequence[Seed],
    plaintexts: Sequence[bytes],
    associated_data: Sequence[bytes],
    insecure_nonce_seeds: Sequence[Seed] | None = None,
) -> list[bytes]:
    """Return what `seal` returns for each key and message, in one call."""

def open_many(
    keys: Sequence[Seed], sealed: Sequence[bytes], associated_data: Sequence[bytes]
) -> list[bytes | None]:
    """Open many sealed messages; None where one does not open."""

def split_secret(
    secret: Seed, threshold: int, points: Sequence[int], coefficient_seed: Seed
) -> list[bytes]:
    """Split into one 40-byte share per point, any `threshold` of which give the secret back.

    Args:
        secret: What is shared.
        threshold: 1 to the number of points.
        points: Different numbers, 1 to 65536.
        coefficient_seed: Fresh seed; used for this call only.

    Raises:
        ShareError: E-SHARE-THRESHOLD, E-SHARE-POINT or E-SHARE-DUPLICATE.
    """

def split_secrets(
    secrets: Sequence[Seed], threshold: int, points: Sequence[int], coefficient_seed: Seed
) -> list[list[bytes]]:
    """Split several secrets at the same points, each by polynomials of its own.

    Returns:
        One list of shares per secret, in the order of the points; the first secret's are those of
        `split_secret`.

    Raises:
        ShareError: As `split_secret`.
    """

def combine_shares(shares: Sequence[tuple[int, bytes]], threshold: int) -> Seed:
    """Combine (point, share) pairs: check all of them, use the first `threshold`.

    A wrong share of the right form gives a wrong secret: compare with a key or commitment.

    Raises:
        ShareError: E-SHARE-THRESHOLD, E-SHARE-TOO-FEW, E-SHARE-POINT, E-SHARE-DUPLICATE,
            E-SHARE-LENGTH, E-SHARE-RANGE or E-SHARE-SECRET.
    """

def combine_many(
    points: Sequence[int], shares: Sequence[Sequence[bytes]], threshold: int
) -> list[Seed | None]:
    """Combine many secrets whose shares sit at the same points.

    Args:
        points: Points of the shares in every list.
        shares: One list per secret, in the order of the points. All are checked, the first
            `threshold` are used.
        threshold: Shares that one secret takes.

    Returns:
        The secrets; None where shares combine to no 32-byte secret.

    Raises:
        ShareError: As `combine_shares`, but for E-SHARE-SECRET.
    """

@final
class Mask:
    """One mask: a seed, the generator that expands it, and its sign. No repr of content."""

    def __new__(cls, seed: Seed, prg: int, subtract: bool) -> Mask:
        """Describe a mask.

        Args:
            seed: Used for this mask only.
            prg: 1 ChaCha20 (key: the seed), 2 AES-128-CTR (key: its first 16 bytes).
            subtract: Whether the mask is taken off.

        Raises:
            ConfigError: E-PRG, another number.
        """
    def __reduce__(self) -> NoReturn: ...

@final
class CancelFlag:
    """Takes back work that another thread is doing; once set it stays so."""

    def __new__(cls) -> CancelFlag: ...
    def cancel(self) -> None:
        """Make the calls that were given this flag end with `Cancelled`, within a tile's time."""
    @property
    def is_cancelled(self) -> bool:
        """Whether the work was taken back."""

def apply_masks(
    accumulator: NDArray[np.uint16] | NDArray[np.uint32],
    ring_bits: int,
    masks: Sequence[Mask],
    threads: int = 1,
    cancel: CancelFlag | None = None,
) -> None:
    """Add masks to the accumulator and take off others, modulo 2^ring_bits.

    Coordinate i of a mask is lane i of its keystream, little-endian, modulo 2^ring_bits; the lanes
    are as wide as the accumulator's. All ends of a session must use the same width.

    Args:
        accumulator: uint16 or uint32 [d], changed in place.
        ring_bits: 8 to 32; at most 16 for uint16.
        masks: Added or taken off, each by its sign.
        threads: 1 to 64; the result does not depend on it.
        cancel: Polled once per 16 KB.

    Raises:
        ConfigError: E-LANE-WIDTH among others, a ring wider than the lanes.
        Cancelled: E-CANCELLED, the flag was set; the accumulator is as it was.
    """

def encode_and_mask(
    update: NDArray[np.float32],
    *,
    clip_norm: float,
    scale: float,
    l2_squared_bound: float,
    noise_variance: float,
    ring_bits: int,
    session_id: bytes,
    rounding_seed: Seed,
    noise_seed: Seed,
    masks: Sequence[Mask],
    rotation_block: int = 0,
    rotation_seed: bytes = b"",
    weight: int = 1,
    weight_bound: int = 1,
    rounding_prg: int = 1,
    threads: int = 1,
    cancel: CancelFlag | None = None,
) -> bytes:
    """Clip, rotate, scale, round, weigh, noise, check, mask and pack an update.

    The vector is [d coordinates, with zeros up to whole rotation blocks] [the weight, if
    weight_bound > 1] [4 check coordinates]; the masks cover all of it in lanes of 16 bits up to
    ring_bits = 16, of 32 above. At most 64 roundings are drawn until one is inside the bound, then
    it is rounded toward zero.

    Args:
        update: float32 [d], finite, not yet clipped.
        clip_norm: L2 bound of the update, above 0, update units.
        scale: Positive factor from update units to integers.
        l2_squared_bound: Bound on the squared L2 norm of the integers, before weight and noise.
        noise_variance: Variance of this device's Skellam noise, 0 (none) to 2^37.
        ring_bits: 8 to 32.
        session_id: 32 bytes; seed of the check coordinates.
        rounding_seed: Fresh seed; never used for another update.
        noise_seed: Fresh seed; never used for another vector.
        masks: Added or taken off, each by its sign.
        rotation_block: 0 for no rotation, else a power of two up to 4096.
        rotation_seed: 32 public bytes where there is a rotation.
        weight: 0 to weight_bound; 1 where that is 1.
        weight_bound: Largest weight; above 1 only without noise.
        rounding_prg: Generator that expands the rounding seed, 1 or 2 as in `Mask`. Where there is
            AES hardware, 2 is quicker.
        threads: 1 to 64; the result does not depend on it.
        cancel: Polled once per 4096 coordinates.

    Returns:
        The packed masked input, ring_bits bits per coordinate.

    Raises:
        ConfigError: E-WEIGHT or E-ROTATION-BLOCK among others.
        PrivacyError: E-UPDATE-NOT-FINITE, E-UPDATE-RANGE (norm of 2^50 and more after scaling),
            E-UPDATE-NORM (over the bound even when rounded toward zero), E-NOISE-VARIANCE or
            E-WEIGHTED-NOISE.
        Cancelled: E-CANCELLED, the flag was set.

    Privacy: the time it takes depends on the number of roundings, and so on the data.
    """

@final
class UploadStage:
    """Blobs that are still arriving: chunks in any order, wrong ones refused, memory bounded.

    Threads, the endpoint's among them, may use it at the same time. A blob's name is
    "DEVICE/TRANSFER". Names that are not open raise ConfigError E-STAGE-KEY, but for `accept` and
    `discard`. Nothing here survives the process.
    """

    def __new__(cls, max_bytes: int, max_blobs: int) -> UploadStage:
        """Bound the announced sizes, hash lists included, and the number of blobs."""
    def open(self, key: str, size_bytes: int, chunk_bytes: int, chunk_hashes: bytes) -> None:
        """Expect a blob; the same manifest again keeps what has arrived.

        Args:
            key: Its name.
            size_bytes: Size of the whole, at least 1.
            chunk_bytes: Size of every chunk but the last, 1 to 122,880.
            chunk_hashes: SHA-256 of each chunk, 32 bytes each, in order.

        Raises ConfigError: E-STAGE-FULL (no room), E-STAGE-KEY (that name is open by another
        manifest), E-STAGE-MANIFEST (it contradicts itself).
        """
    def accept(self, key: str, packet: bytes) -> str:
        """Take a chunk packet (0x01, index in four bytes, data) from a peer, whatever its bytes.

        Returns "stored", "whole" (it was the last one missing), "duplicate", or what is wrong with
        it: "wrong-hash", "wrong-size", "no-such-chunk", "malformed", "no-such-transfer".
        """
    def missing(self, key: str) -> bytes:
        """Return the bitmap of the missing chunks: bit i % 8 of byte i // 8 for chunk i."""
    def missing_count(self, key: str) -> int:
        """Return how many chunks are missing."""
    def read(self, key: str) -> bytes:
        """Return a copy of a blob. Raises ConfigError E-STAGE-INCOMPLETE while it is not whole."""
    def take(self, key: str) -> bytes:
        """Return a blob and forget it. Raises ConfigError E-STAGE-INCOMPLETE as `read` does."""
    def take_out(self, key: str) -> StagedBlob:
        """Return a blob without a copy, and forget it. Raises as `take` does."""
    def discard(self, key: str) -> bool:
        """Forget a blob, whole or not; tell whether it was open."""
    def keys(self) -> list[str]:
        """Return the names of the open blobs, in no order."""
    @property
    def held_bytes(self) -> int:
        """Bytes that the open blobs may take, hash lists included."""

@final
class StagedBlob:
    """A blob that was taken out of a stage; its bytes stay where they arrived.

    Not compared, copied or pickled. The stage uses its memory again once it is gone.
    """

    @property
    def name(self) -> bytes:
        """32 bytes that name its content: the SHA-256 of its bytes up to MAX_CHUNK_BYTES.

        Above, a hash over size, chunk size and chunk hashes, which were checked.
        """
    def to_bytes(self) -> bytes:
        """Return a copy of its bytes."""
    def __len__(self) -> int: ...

@final
class EndpointEvent:
    """Something that happened at the endpoint; what does not belong to its kind is None.

    Kinds: "message" (topic, payload, retained, and a ticket where a PUBACK waits), "connected"
    (address, version "3.1.1" or "5", session_present, keep_alive_s), "disconnected" (address, code,
    reason "normal", "lost", "keep-alive", "taken-over", "protocol", "slow" or "closed"), "refused"
    (address, code, detail), "taken-over" (old_address, new_address), "dropped" (topic, reason
    "queue-full" or "too-large"), "upload" (device, transfer, detail, reason "progress", "whole" or
    "refused"). Wherever a client is meant: client_id, and the identity that its link proves.
    """

    @property
    def kind(self) -> str: ...
    @property
    def ticket(self) -> int | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def retained(self) -> bool: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def address(self) -> str | None: ...
    @property
    def old_address(self) -> str | None: ...
    @property
    def new_address(self) -> str | None: ...
    @property
    def version(self) -> str | None: ...
    @property
    def session_present(self) -> bool: ...
    @property
    def keep_alive_s(self) -> int | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def code(self) -> int | None: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def device(self) -> str | None: ...
    @property
    def transfer(self) -> str | None: ...

@final
class MqttEndpoint:
    """An MQTT server in this process, on threads of its own.

    Only in builds with the cargo feature `endpoint`: ask `hasattr(edgefl._native, "MqttEndpoint")`.
    Addresses are "HOST:PORT", with port 0 for a free one; listeners without TLS are for loopback.
    Bounds by name are listed in docs/endpoint.md. No method waits for a client.
    """

    def __new__(
        cls,
        fleet: str,
        *,
        mqtt: str | None = None,
        mqtts: str | None = None,
        ws: str | None = None,
        wss: str | None = None,
        client_authorities: bytes | None = None,
        certificate_chain: bytes | None = None,
        private_key: bytes | None = None,
        stage: UploadStage | None = None,
        worker_threads: int = 2,
        **limit: float,
    ) -> MqttEndpoint:
        """Prepare; nothing listens before `start`.

        Args:
            fleet: Stands in every topic.
            mqtt: Address for MQTT without TLS.
            mqtts: Address for MQTT over TLS with client certificates.
            ws: Address for MQTT over WebSocket (path /mqtt) without TLS.
            wss: The same over TLS.
            client_authorities: PEM of those who sign the devices' certificates.
            certificate_chain: PEM of the gateway's certificate and what leads from it to them.
            private_key: PEM.
            stage: Where upload chunks go; without it they are ordinary messages.
            worker_threads: 1 to 16.
            limit: Bounds by name.

        Raises ConfigError: E-PLAINTEXT-REMOTE, E-TLS-SETTINGS, E-TLS-MATERIAL, E-LISTEN-ADDRESS,
        E-ENDPOINT-SETTING.
        """
    def start(self) -> dict[str, int]:
        """Listen, and return the port of each listener by its name.

        Raises EnvironmentProblem (E-PORT-IN-USE, E-PORT-FORBIDDEN, E-LISTEN-ADDRESS) and
        TransportError (E-ENDPOINT-STATE).
        """
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        retain: bool = False,
        expiry_s: int | None = None,
    ) -> int:
        """Publish to every subscriber and return their number; queues without room report it."""
    def send_chunks(
        self,
        topic: str,
        transfer_id: bytes,
        blob: bytes,
        chunk_bytes: int,
        indices: Sequence[int],
        expiry_s: int | None = None,
    ) -> int:
        """Send chunks of a transfer to every subscriber that is connected; return their number.

        Each chunk is cut from `blob`, which is not copied, once the client has acknowledged all
        but three of those before, and when nothing else waits for it. Chunks follow those that
        were asked for before; a transfer ends with its client's connection.
        """
    def stop_chunks(self, topic: str, transfer_id: bytes) -> None:
        """Send no more chunks of a transfer than are under way."""
    def subscribe(self, filters: Sequence[str]) -> None:
        """Ask for messages of well-formed filters; retained ones come at once."""
    def take_events(self, max: int) -> list[EndpointEvent]:  # noqa: A002 - the binding's name
        """Return up to `max` events, without waiting."""
    def acknowledge(self, tickets: Sequence[int], reason: int = 0) -> None:
        """Let the PUBACKs of these messages go out, with a reason code where the client has MQTT 5.

        Tickets that are not known are ignored.
        """
    def fileno(self) -> int:
        """Return a descriptor that is readable while events wait; not to be read from."""
    def set_tls(
        self, client_authorities: bytes, certificate_chain: bytes, private_key: bytes
    ) -> None:
        """Replace certificates and key for connections from now on; ConfigError E-TLS-MATERIAL."""
    def set_revoked(self, serials: Sequence[str], identities: Sequence[str]) -> None:
        """Replace the lists of who is shut out, and cut them off.

        Args:
            serials: Of certificates, lower-case hexadecimal without leading zeros.
            identities: Names in certificates.
        """
    def disconnect(self, identity: str, reason: int = 152) -> int:
        """End the connections of an identity and return their number."""
    def stats(self) -> dict[str, int]:
        """Return counters and present sizes by name."""
    def connections(self) -> list[tuple[str, str | None, str | None, int, int]]:
        """Return client id, identity, address (None: away), queued messages, bytes by session."""
    def close(self) -> None:
        """Say goodbye to every client and end all threads; waits three seconds at most."""

@final
class RingSum:
    """A sum of packed vectors modulo 2^ring_bits, held and wiped by Rust.

    The last four coordinates are check coordinates. Memory: 2 bytes per coordinate up to
    ring_bits = 16, 4 above. Calls from several threads wait for each other, without the GIL.
    """

    def __new__(cls, length: int, ring_bits: int) -> RingSum:
        """Start at zero with this many coordinates, check coordinates included (5 or more)."""
    def add_packed(self, packed: bytes | bytearray) -> None:
        """Add a packed vector; adds nothing where its form is wrong.

        Raises:
            WireError: E-PACKED-LENGTH or E-PACKED-PADDING.
        """
    def add_staged(self, blob: StagedBlob) -> None:
        """Add a packed vector from where it arrived; raises as `add_packed` does."""
    def to_packed(self) -> bytes:
        """Return the sum so far, packed as the inputs are.

        Added to a new sum of the same form it gives the same sum, for a gateway that restarts.
        Security: as masked as the inputs, until masks are taken off.
        """
    def apply_masks(
        self, masks: Sequence[Mask], threads: int = 1, cancel: CancelFlag | None = None
    ) -> None:
        """Add masks and take off others, in place.

        Raises:
            Cancelled: E-CANCELLED, the flag was set. The sum is gone: every later call raises
                ConfigError E-SUM-SPOILT.
        """
    def checks_hold(self, session_id: bytes) -> bool:
        """Tell whether the check coordinates are those of the values before them."""
    def values(self, count: int) -> bytes:
        """Return the first values as uint32, little-endian; at most those before the checks."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...

def decode_sum(
    total: NDArray[np.uint32],
    out: NDArray[np.float64],
    *,
    ring_bits: int,
    scale: float,
    rotation_block: int = 0,
    rotation_seed: bytes = b"",
) -> None:
    """Centre an unmasked sum around zero, undo the rotation, divide by the scale.

    Args:
        total: uint32 [d up to whole rotation blocks], each below 2^ring_bits.
        out: float64 [d], overwritten, update units.
        ring_bits: 8 to 32.
        scale: Integers per update unit.
        rotation_block: As in `encode_and_mask`.
        rotation_seed: As in `encode_and_mask`.
    """

def rotate(values: NDArray[np.float64], rotation_block: int, rotation_seed: bytes) -> None:
    """Rotate float64 [whole blocks] in place: (1 / sqrt(block)) * Hadamard * signs.

    Source: Ailon and Chazelle 2009.
    """

def quantize(
    update: NDArray[np.float32],
    out: NDArray[np.int64],
    scale: float,
    l2_squared_bound: float,
    rounding_seed: Seed,
    max_attempts: int = 64,
) -> int:
    """Round scale * update to integers at random, inside the bound on the squared norm.

    Args:
        update: float32 [d], finite.
        out: int64 [d], overwritten.
        scale: Positive factor from update units to integers.
        l2_squared_bound: Bound on the squared L2 norm of the integers.
        rounding_seed: Fresh seed; never used for another update.
        max_attempts: Draws before rounding toward zero.

    Returns:
        The attempts used; max_attempts + 1 after rounding toward zero. Privacy: depends on the
        data; do not publish it.

    Raises:
        PrivacyError: E-UPDATE-NOT-FINITE, E-UPDATE-RANGE (2^50 and more after scaling) or
            E-UPDATE-NORM (over the bound even when rounded toward zero).
    """

def add_skellam_noise(values: NDArray[np.int64], variance: float, noise_seed: Seed) -> None:
    """Add Skellam noise: Poisson(variance / 2) minus another, the same integers on any machine.

    Args:
        values: int64 [d], changed in place.
        variance: 0 (adds nothing) to 2^37, rounded up to a multiple of 2^-15.
        noise_seed: Fresh seed; never used for another vector.

    Raises:
        PrivacyError: E-NOISE-VARIANCE or E-NOISE-OVERFLOW.
    """

def check_coordinates(values: NDArray[np.uint32], ring_bits: int, session_id: bytes) -> list[int]:
    """Return four public linear combinations of uint32 [d] values, modulo 2^ring_bits."""

def pack(values: NDArray[np.uint32], ring_bits: int) -> bytes:
    """Pack uint32 [d] values below 2^ring_bits into ring_bits bits each, lowest bit first."""

def unpack(packed: bytes | bytearray | memoryview, ring_bits: int, out: NDArray[np.uint32]) -> None:
    """Unpack exactly d values into uint32 [d].

    Raises:
        WireError: E-PACKED-LENGTH or E-PACKED-PADDING.
    """

def backends() -> dict[str, list[str]]:
    """Return the mask code of this machine, the chosen first, by generator.

    For example {"chacha20": ["avx2", "portable"], "aes-128-ctr": ["vaes", "aes-ni", "portable"]}.
    No setting or environment variable changes it.
    """

def has_aes_hardware() -> bool:
    """Say whether this processor has AES instructions: what a device declares in its bundle."""

def selftest() -> list[tuple[str, bool]]:
    """Run the standards' vectors, and compare all mask code of this machine with the portable one.

    Returns:
        One (name, passed) per check; each vector is also tried with bits flipped, which must be
        noticed.
    """

def measure_backend(prg: str, backend: str, lane_bits: int) -> float:
    """Return nanoseconds per coordinate and mask of one piece of mask code, on one core.

    Args:
        prg: A key of `backends()`.
        backend: One of its values.
        lane_bits: 16 or 32.

    Raises:
        EnvironmentProblem: E-BACKEND, this machine has no such code.
    """
