"""A device's state in a one-upload round as one value, and its bytes on flash."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from edgefl._native import Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_state import peers_to_list, read_peers
from edgefl.protocol.limits import DIGEST_BYTES, KEY_BYTES, MAX_COHORT, SHARE_BYTES
from edgefl.protocol.one_upload_messages import CommitteeProposal, OneUpload
from edgefl.protocol.one_upload_sharing import SealingKey
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.protocol.round_messages import Leave, RevealedShares, SurvivorVote, UnmaskRequest
from edgefl.protocol.spooled import named_body, whole_body
from edgefl.secagg.session import PeerKeys

SNAPSHOT_VERSION = 2

_FIELDS = 14
_PLAN, _PEERS, _HOLDERS, _ASKS, _SEED, _UPLOAD, _OWN_SHARE = 2, 3, 4, 5, 6, 7, 8
_PROPOSAL, _VOTE, _REQUEST, _REVEALED, _LEFT = 9, 10, 11, 12, 13
_NEEDED_FIELDS = {
    Phase.MASKED_INPUT: (),
    Phase.CERTIFICATE: (_UPLOAD, _OWN_SHARE, _PROPOSAL, _VOTE),
    Phase.UNMASKING: (_UPLOAD, _OWN_SHARE, _PROPOSAL, _VOTE, _REQUEST, _REVEALED),
    Phase.COMMITTED: (),
    Phase.ABORTED: (),
}


class _Message(Protocol):
    def to_body(self) -> wire.Body: ...


@dataclass(slots=True, kw_only=True, repr=False)
class OneUploadState:
    """Everything that a device must remember to go on with a round after a restart.

    Security: it holds the seed of the self mask; the driver wipes the stored bytes when the round
    ends.

    Attributes:
        peers: What is used of this device and its neighbours, by position in the plan.
        holders: Sealing keys of the committees, by epoch position.
        asks_deposit: The upload is to carry a deposit for the next index.
        self_seed: Seed of the self mask, drawn for this session.
        upload: What was sent, as was everything below.
        own_share: This device's own share of its self seed, where it is in the committee.
        proposal: The only lists that this device signs in the session, and `vote` its signature.
    """

    phase: Phase
    plan: SessionPlan
    peers: Mapping[int, PeerKeys]
    holders: Mapping[int, SealingKey]
    asks_deposit: bool
    self_seed: Seed
    upload: OneUpload | None = None
    own_share: bytes | None = field(default=None)
    proposal: CommitteeProposal | None = None
    vote: SurvivorVote | None = None
    unmask_request: UnmaskRequest | None = None
    revealed: RevealedShares | None = None
    left: LeaveReason | None = None

    @property
    def last_message(self) -> "Leave | OneUpload | SurvivorVote | RevealedShares | None":
        """The newest message that was stored; None before the upload."""
        if self.left is not None:
            return Leave(reason=self.left)
        return self.revealed or self.vote or self.upload

    def require_upload(self) -> OneUpload:
        """Return the upload.

        Raises:
            RemoteProtocolError: E-UNMASK-EARLY, it was not made.
        """
        if self.upload is None:
            raise RemoteProtocolError(
                "E-UNMASK-EARLY", "lists of survivors after the upload", "some before it"
            )
        return self.upload

    def require_proposal(self) -> CommitteeProposal:
        """Return the proposal, of which the machine's phase says that it is there."""
        if self.proposal is None:
            raise LocalProtocolError("E-DEVICE-STATE", "a proposal", "none yet")
        return self.proposal

    def to_bytes(self) -> bytes:
        """Return the deterministic CBOR."""
        return wire.encode(
            {
                0: SNAPSHOT_VERSION,
                1: int(self.phase),
                _PLAN: self.plan.to_bytes(),
                _PEERS: peers_to_list(self.peers),
                _HOLDERS: [
                    [position, key.share_key, key.bundle_sha256]
                    for position, key in sorted(self.holders.items())
                ],
                _ASKS: int(self.asks_deposit),
                _SEED: self.self_seed.export_bytes(),
                _UPLOAD: None if self.upload is None else named_body(self.upload),
                _OWN_SHARE: self.own_share,
                _PROPOSAL: _body_of(self.proposal),
                _VOTE: _body_of(self.vote),
                _REQUEST: _body_of(self.unmask_request),
                _REVEALED: _body_of(self.revealed),
                _LEFT: None if self.left is None else int(self.left),
            }
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes, spooled: bytes | None = None) -> "OneUploadState":
        """Read a snapshot.

        Args:
            snapshot: Of `to_bytes`.
            spooled: The masked vector, where one was made.

        Raises:
            WireError: It is damaged or of another version, or the masked vector is.
        """
        body = wire.as_body(wire.decode(snapshot))
        if sorted(body) != list(range(_FIELDS)):
            raise WireError(
                "E-SNAPSHOT", f"a snapshot with fields 0 to {_FIELDS - 1}", f"{len(body)} fields"
            )
        wire.as_int(body[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        phase = Phase(wire.as_int(body[1], 1, len(Phase)))
        _require_fields(body, phase)
        left, share, upload = body[_LEFT], body[_OWN_SHARE], body[_UPLOAD]
        return cls(
            phase=phase,
            plan=SessionPlan.from_bytes(wire.as_bytes(body[_PLAN])),
            peers=read_peers(body[_PEERS]),
            holders=_read_holders(body[_HOLDERS]),
            asks_deposit=bool(wire.as_int(body[_ASKS], 0, 1)),
            self_seed=Seed.from_bytes(wire.as_bytes(body[_SEED], KEY_BYTES)),
            upload=None if upload is None else OneUpload.from_body(whole_body(upload, spooled)),
            own_share=None if share is None else wire.as_bytes(share, SHARE_BYTES),
            proposal=_read(CommitteeProposal, body[_PROPOSAL]),
            vote=_read(SurvivorVote, body[_VOTE]),
            unmask_request=_read(UnmaskRequest, body[_REQUEST]),
            revealed=_read(RevealedShares, body[_REVEALED]),
            left=None if left is None else LeaveReason(wire.as_int(left, 1, len(LeaveReason))),
        )


_Read = TypeVar("_Read", CommitteeProposal, SurvivorVote, UnmaskRequest, RevealedShares)


def _read(message: type[_Read], value: wire.WireValue) -> _Read | None:
    return None if value is None else message.from_body(wire.as_body(value))


def _body_of(message: _Message | None) -> wire.Body | None:
    return None if message is None else message.to_body()


def _require_fields(body: wire.Body, phase: Phase) -> None:
    """Check that all is there that a phase needs."""
    needed = _NEEDED_FIELDS.get(phase)
    if needed is None:
        raise WireError("E-SNAPSHOT", "a phase of the one-upload mode", phase.name)
    missing = [key for key in needed if body[key] is None]
    if missing:
        raise WireError(
            "E-SNAPSHOT", f"a snapshot with all that phase {phase.name} needs", f"no {missing}"
        )


def _read_holders(value: wire.WireValue) -> dict[int, SealingKey]:
    holders: dict[int, SealingKey] = {}
    for item in wire.as_list(value, MAX_COHORT):
        parts = wire.as_list(item, 3)
        if len(parts) != 3:
            raise WireError("E-SNAPSHOT", "holders of 3 parts", f"{len(parts)} parts")
        holders[wire.as_int(parts[0], 0, MAX_COHORT - 1)] = SealingKey(
            share_key=wire.as_bytes(parts[1], KEY_BYTES),
            bundle_sha256=wire.as_bytes(parts[2], DIGEST_BYTES),
        )
    return holders
