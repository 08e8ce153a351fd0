"""The device's state in a round as one value, and its bytes on flash."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from edgefl._native import Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.limits import DIGEST_BYTES, KEY_BYTES, MAX_COHORT
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.protocol.round_messages import (
    Call,
    Leave,
    MaskedInput,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.spooled import named_body, whole_body
from edgefl.secagg.session import PeerKeys

SNAPSHOT_VERSION = 3

_FIELDS = 15
_PLAN, _PEERS, _SEED, _SHARED, _ROUTED, _MASKED = 3, 4, 5, 6, 7, 8
_PROPOSAL, _VOTE, _REQUEST, _REVEALED, _LEFT, _BUNDLE = 9, 10, 11, 12, 13, 14
_AFTER_PLAN = (_PLAN, _PEERS, _SEED, _SHARED)
_AFTER_ROUTED = (*_AFTER_PLAN, _ROUTED)
_NEEDED_FIELDS = {
    Phase.SHARE_KEYS: _AFTER_PLAN,
    Phase.MASKED_INPUT: _AFTER_ROUTED,
    Phase.CERTIFICATE: (*_AFTER_ROUTED, _MASKED, _PROPOSAL, _VOTE),
    Phase.UNMASKING: (*_AFTER_ROUTED, _MASKED, _REQUEST, _REVEALED),
}


class _Message(Protocol):
    def to_body(self) -> wire.Body: ...


@dataclass(slots=True, kw_only=True, repr=False)
class DeviceState:
    """Everything that a device must remember to go on with a round after a restart.

    The keys of the key epoch are not in it: `DeviceEpoch` holds them. Security: it holds the seed
    of the self mask; the driver wipes the stored bytes when the round ends.

    Attributes:
        bundle_sha256: Hash of the device's own bundle: whose round this is, in which key epoch.
        plan: The accepted plan; everything below comes with it or after it.
        peers: What is used of this device and its neighbours, by position in the plan.
        self_seed: Seed of the self mask, drawn for this session.
        shared: What was sent in SHARE_KEYS, as was everything below in its phase.
        routed: The neighbours' ciphertexts.
        proposal: The only lists that this device signs in the session, and `vote` its signature.
    """

    phase: Phase
    call: Call
    bundle_sha256: bytes
    plan: SessionPlan | None = None
    peers: Mapping[int, PeerKeys] = field(default_factory=dict)
    self_seed: Seed | None = None
    shared: SharedKeys | None = None
    routed: RoutedShares | None = None
    masked: MaskedInput | None = None
    proposal: SurvivorProposal | None = None
    vote: SurvivorVote | None = None
    unmask_request: UnmaskRequest | None = None
    revealed: RevealedShares | None = None
    left: LeaveReason | None = None

    @property
    def last_message(self) -> DeviceMessage | None:
        """The newest message that was stored; None where the check-in is the only one."""
        if self.left is not None:
            return Leave(reason=self.left)
        return self.revealed or self.vote or self.masked or self.shared

    def require_plan(self) -> SessionPlan:
        """Return the plan, of which the machine's phase says that it is there."""
        return _require(self.plan, "a session plan")

    def require_self_seed(self) -> Seed:
        """Return the seed of the self mask, of which the phase says that it is there."""
        return _require(self.self_seed, "a self-mask seed")

    def require_routed(self) -> RoutedShares:
        """Return the neighbours' ciphertexts, of which the phase says that they are there."""
        return _require(self.routed, "routed shares")

    def require_masked(self) -> RoutedShares:
        """Return the neighbours' ciphertexts if the masked input was made.

        Raises:
            RemoteProtocolError: E-UNMASK-EARLY, it was not.
        """
        if self.masked is None:
            raise RemoteProtocolError(
                "E-UNMASK-EARLY", "lists of survivors after the masked input", "some before it"
            )
        return self.require_routed()

    def contradicts_vote(self, request: UnmaskRequest) -> bool:
        """Tell whether this device signed other lists than those of a request."""
        signed = self.proposal
        return signed is not None and (signed.survivors, signed.dropped) != (
            request.survivors,
            request.dropped,
        )

    def to_bytes(self) -> bytes:
        """Return the deterministic CBOR."""
        return wire.encode(
            {
                0: SNAPSHOT_VERSION,
                1: int(self.phase),
                2: self.call.to_body(),
                _PLAN: None if self.plan is None else self.plan.to_bytes(),
                _PEERS: peers_to_list(self.peers) or None,
                _SEED: None if self.self_seed is None else self.self_seed.export_bytes(),
                _SHARED: _body_of(self.shared),
                _ROUTED: _body_of(self.routed),
                _MASKED: None if self.masked is None else named_body(self.masked),
                _PROPOSAL: _body_of(self.proposal),
                _VOTE: _body_of(self.vote),
                _REQUEST: _body_of(self.unmask_request),
                _REVEALED: _body_of(self.revealed),
                _LEFT: None if self.left is None else int(self.left),
                _BUNDLE: self.bundle_sha256,
            }
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes, spooled: bytes | None = None) -> "DeviceState":
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
        left, plan, seed, masked = body[_LEFT], body[_PLAN], body[_SEED], body[_MASKED]
        return cls(
            phase=phase,
            call=Call.from_body(wire.as_body(body[2])),
            bundle_sha256=wire.as_bytes(body[_BUNDLE], DIGEST_BYTES),
            plan=None if plan is None else SessionPlan.from_bytes(wire.as_bytes(plan)),
            peers=read_peers(body[_PEERS]),
            self_seed=None if seed is None else Seed.from_bytes(wire.as_bytes(seed, KEY_BYTES)),
            shared=_read(SharedKeys, body[_SHARED]),
            routed=_read(RoutedShares, body[_ROUTED]),
            masked=None if masked is None else MaskedInput.from_body(whole_body(masked, spooled)),
            proposal=_read(SurvivorProposal, body[_PROPOSAL]),
            vote=_read(SurvivorVote, body[_VOTE]),
            unmask_request=_read(UnmaskRequest, body[_REQUEST]),
            revealed=_read(RevealedShares, body[_REVEALED]),
            left=None if left is None else LeaveReason(wire.as_int(left, 1, len(LeaveReason))),
        )


_T = TypeVar("_T")
_Read = TypeVar(
    "_Read",
    SharedKeys,
    RoutedShares,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
    RevealedShares,
)


def _require(value: _T | None, name: str) -> _T:
    if value is None:
        raise LocalProtocolError("E-DEVICE-STATE", name, "none yet")
    return value


def _read(message: type[_Read], value: wire.WireValue) -> _Read | None:
    return None if value is None else message.from_body(wire.as_body(value))


def _body_of(message: _Message | None) -> wire.Body | None:
    return None if message is None else message.to_body()


def _require_fields(body: wire.Body, phase: Phase) -> None:
    """Check that all is there that a phase needs, and nothing of which a half is missing."""
    needed = _NEEDED_FIELDS.get(phase, ())
    missing = [key for key in needed if body[key] is None]
    if missing:
        raise WireError(
            "E-SNAPSHOT", f"a snapshot with all that phase {phase.name} needs", f"no {missing}"
        )


def peers_to_list(peers: Mapping[int, PeerKeys]) -> list[wire.WireValue]:
    """Return the CBOR array of peers by position in the plan."""
    return [
        [
            position,
            keys.share_key,
            keys.mask_key,
            keys.bundle_sha256,
            int(keys.has_aes),
        ]
        for position, keys in sorted(peers.items())
    ]


def read_peers(value: wire.WireValue) -> dict[int, PeerKeys]:
    """Read the CBOR array of peers."""
    peers: dict[int, PeerKeys] = {}
    for item in wire.as_list([] if value is None else value, MAX_COHORT):
        parts = wire.as_list(item, 5)
        if len(parts) != 5:
            raise WireError("E-SNAPSHOT", "peers of 5 parts", f"{len(parts)} parts")
        peers[wire.as_int(parts[0], 0, MAX_COHORT - 1)] = PeerKeys(
            share_key=wire.as_bytes(parts[1], KEY_BYTES),
            mask_key=wire.as_bytes(parts[2], KEY_BYTES),
            bundle_sha256=wire.as_bytes(parts[3], DIGEST_BYTES),
            has_aes=bool(wire.as_int(parts[4], 0, 1)),
        )
    return peers
