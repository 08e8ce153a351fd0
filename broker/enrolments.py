"""Which boards were let in: their states, certificates and what was revoked; durable."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from edgefl.errors import RemoteProtocolError, StorageError, WireError
from edgefl.protocol.limits import DIGEST_BYTES, KEY_BYTES
from edgefl.protocol.topics import is_name
from edgefl.protocol.wire import (
    WireValue,
    as_bytes,
    as_int,
    as_list,
    as_text,
    decode,
    encode,
)
from edgefl.storage.base import KeyValueStore
from edgefl.storage.read_only import ReadableStore

MAX_PENDING: Final = 1_000
MAX_CERTIFICATES: Final = 8
"""Of one board at a time; the oldest is revoked for one more."""
_RECORD: Final = "record/"
_CLAIM: Final = "claim/"
_REVOKED: Final = "revoked"
_MAX_TIME_S: Final = 2**40
_MAX_SERIAL_BYTES: Final = 20
_MAX_REVOKED: Final = 1 << 16
_KEPT_FOR_OPERATOR: Final = 1 << 13
"""Entries that boards' own requests cannot fill: who is put out must find room."""
_MAX_DER_BYTES: Final = 8_192


class Admission(IntEnum):
    """How a board stands with this gateway."""

    PENDING = 1  # it asked; the operator has not decided
    ACCEPTED = 2
    REJECTED = 3  # refused; it may ask again with a new key, or be accepted after all
    REVOKED = 4  # was in, and is out


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentRecord:
    """One board.

    Attributes:
        identity_key: Ed25519 public key.
        claim: The token that it came with.
        first_seen_s: Seconds since 1970.
        certificate_request: The newest, PKCS #10, DER.
        request_digest: SHA-256 of the payload that the next answer is for.
        certificate: The newest, DER; empty before there is one.
        issued: (serial number, end in seconds since 1970) of each of its certificates, newest last.
        trusted_digest: SHA-256 over the authorities that the board is known to trust; empty if
            that is not known.
    """

    device: str
    identity_key: bytes
    admission: Admission
    claim: str
    first_seen_s: int
    certificate_request: bytes = field(repr=False)
    request_digest: bytes = field(repr=False)
    certificate: bytes = field(default=b"", repr=False)
    issued: tuple[tuple[int, int], ...] = ()
    trusted_digest: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return encode(
            [
                self.device,
                self.identity_key,
                int(self.admission),
                self.claim,
                self.first_seen_s,
                self.certificate_request,
                self.request_digest,
                self.certificate,
                _pack_issued(self.issued),
                self.trusted_digest,
            ]
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "EnrolmentRecord":
        """Read the stored form.

        Raises:
            WireError: It is damaged.
        """
        parts = as_list(decode(content), 10)
        if len(parts) != 10:
            raise WireError("E-WIRE-TYPE", "10 fields", f"{len(parts)}")
        return cls(
            device=as_text(parts[0], 64),
            identity_key=as_bytes(parts[1], KEY_BYTES),
            admission=Admission(as_int(parts[2], 1, len(Admission))),
            claim=as_text(parts[3], 64),
            first_seen_s=as_int(parts[4], 0, _MAX_TIME_S),
            certificate_request=as_bytes(parts[5], max_bytes=_MAX_DER_BYTES),
            request_digest=as_bytes(parts[6], DIGEST_BYTES),
            certificate=as_bytes(parts[7], max_bytes=_MAX_DER_BYTES),
            issued=_read_issued(parts[8], MAX_CERTIFICATES),
            trusted_digest=as_bytes(parts[9], max_bytes=DIGEST_BYTES),
        )

    @property
    def expires_s(self) -> int:
        """When the newest certificate ends; 0 where there is none."""
        return self.issued[-1][1] if self.issued else 0


def read_records(store: ReadableStore) -> tuple[EnrolmentRecord, ...]:
    """Return the records in a store, of a stopped gateway too.

    Raises:
        WireError: One is damaged.
    """
    return tuple(EnrolmentRecord.from_bytes(store.get(key) or b"") for key in store.keys(_RECORD))


class Enrolments:
    """The records of all boards that asked.

    Args:
        store: A durable namespace of its own.

    Raises:
        StorageError: E-STATE-DAMAGED.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Read everything."""
        self._store = store
        try:
            records = read_records(store)
            self._revoked = _read_revoked(store.get(_REVOKED))
            self._used = {
                key.removeprefix(_CLAIM): _read_names(store.get(key)) for key in store.keys(_CLAIM)
            }
        except WireError as error:
            raise StorageError(
                "E-STATE-DAMAGED", "readable records of enrolment", error.found
            ) from error
        self._records = {record.device: record for record in records}
        self._names = {record.identity_key: record.device for record in records}
        self._pending = sum(record.admission is Admission.PENDING for record in records)

    @property
    def records(self) -> tuple[EnrolmentRecord, ...]:
        """All records, by name."""
        return tuple(self._records[device] for device in sorted(self._records))

    @property
    def pending_count(self) -> int:
        """How many boards wait for the operator."""
        return self._pending

    def get(self, device: str) -> EnrolmentRecord | None:
        """Return a board's record."""
        return self._records.get(device)

    def name_of(self, identity_key: bytes) -> str | None:
        """Return under which name a key is known."""
        return self._names.get(identity_key)

    def used(self, claim: str) -> frozenset[str]:
        """Return the boards that count as uses of a token."""
        return self._used.get(claim, frozenset())

    def put(self, record: EnrolmentRecord) -> None:
        """Store a record, and count or free the use of its token, in one step."""
        before = self._records.get(record.device)
        changes: dict[str, bytes | None] = {_RECORD + record.device: record.to_bytes()}
        used = self.used(record.claim)
        after = (
            used - {record.device}
            if record.admission is Admission.REJECTED
            else used | {record.device}
        )
        if after != used:
            self._used[record.claim] = after
            changes[_CLAIM + record.claim] = encode(sorted(after))
        self._store.put_many(changes)
        if before is not None:
            self._names.pop(before.identity_key, None)
            self._pending -= before.admission is Admission.PENDING
        self._records[record.device] = record
        self._names[record.identity_key] = record.device
        self._pending += record.admission is Admission.PENDING

    def add_certificate(
        self, record: EnrolmentRecord, certificate: bytes, serial: int, expires_s: int, now_s: float
    ) -> tuple[EnrolmentRecord, bool]:
        """Note a new certificate, without storing the record.

        Args:
            record: Of the board.
            certificate: DER.
            serial: Its serial number.
            expires_s: When it ends.
            now_s: Seconds since 1970.

        Returns:
            The new record, and whether the oldest certificate had to be revoked for it.
        """
        valid = [one for one in record.issued if one[1] > now_s]
        surplus = valid[: max(0, len(valid) + 1 - MAX_CERTIFICATES)]
        self._revoke(surplus, now_s)
        kept = (*valid[len(surplus) :], (serial, expires_s))
        return replace(record, certificate=certificate, issued=kept), bool(surplus)

    def revoke_certificates(self, record: EnrolmentRecord, now_s: float) -> EnrolmentRecord:
        """Put all of a board's certificates on the revocation list; return its record without."""
        self._revoke(record.issued, now_s)
        return replace(record, certificate=b"", issued=())

    def _revoke(self, issued: Iterable[tuple[int, int]], now_s: float) -> None:
        # What has ended by itself needs no entry any more.
        valid = {serial: until for serial, until in self._revoked.items() if until > now_s}
        valid |= dict(issued)
        if valid != self._revoked:
            self._revoked = dict(sorted(valid.items(), key=lambda item: item[1])[-_MAX_REVOKED:])
            self._store.put(_REVOKED, encode(_pack_issued(self._revoked.items())))

    def require_room_to_revoke(self, count: int) -> None:
        """Refuse what a board asks for where it would push older entries off the revocation list.

        Raises:
            RemoteProtocolError: E-REVOCATIONS.
        """
        if count and len(self._revoked) + count > _MAX_REVOKED - _KEPT_FOR_OPERATOR:
            raise RemoteProtocolError(
                "E-REVOCATIONS",
                "room on the revocation list",
                f"{len(self._revoked)} certificates that were withdrawn and have not ended",
                "wait until some have, or replace the authority: 'edgefl gateway ca rotate'",
            )

    @property
    def revoked_serials(self) -> frozenset[int]:
        """Serial numbers of certificates that were withdrawn before their end."""
        return frozenset(self._revoked)

    @property
    def revoked_devices(self) -> frozenset[str]:
        """Boards that are out."""
        revoked = Admission.REVOKED
        return frozenset(name for name, one in self._records.items() if one.admission is revoked)


def _pack_issued(issued: Iterable[tuple[int, int]]) -> list[WireValue]:
    return [
        [serial.to_bytes((serial.bit_length() + 7) // 8, "big"), until] for serial, until in issued
    ]


def _read_issued(value: WireValue, max_items: int) -> tuple[tuple[int, int], ...]:
    rows = [as_list(row, 2) for row in as_list(value, max_items)]
    if any(len(row) != 2 for row in rows):
        raise WireError("E-WIRE-TYPE", "pairs", "other lists")
    return tuple(
        (
            int.from_bytes(as_bytes(row[0], max_bytes=_MAX_SERIAL_BYTES), "big"),
            as_int(row[1], 0, _MAX_TIME_S),
        )
        for row in rows
    )


def _read_revoked(content: bytes | None) -> dict[int, int]:
    return {} if content is None else dict(_read_issued(decode(content), _MAX_REVOKED))


def _read_names(content: bytes | None) -> frozenset[str]:
    if content is None:
        return frozenset()
    names = [as_text(item, 64) for item in as_list(decode(content), 1 << 17)]
    if not all(is_name(name) for name in names):
        raise WireError("E-WIRE-TEXT", "names of devices", "other text")
    return frozenset(names)
