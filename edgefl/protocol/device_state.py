"""The device's state in a round as one value, and its bytes on flash."""

from dataclasses import dataclass

from edgefl._native import AgreementKey, Seed
from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.messages import (
    Call,
    MaskedInput,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import LeaveReason, Phase

SNAPSHOT_VERSION = 1

_NEEDED_FIELDS = {
    Phase.SHARE_KEYS: (6, 7),
    Phase.MASKED_INPUT: (6, 7, 8),
    Phase.UNMASKING: (6, 7, 8, 9, 10, 11),
}


@dataclass(slots=True, kw_only=True, repr=False)
class DeviceState:
    """Everything that a device must remember to go on with a round after a restart.

    Security: it holds the session's secrets; the driver wipes the stored bytes when the round ends.

    Attributes:
        share_secret: Key that share keys are agreed with.
        mask_secret: One-time key that pairwise masks are agreed with.
        self_seed: Seed of the self mask.
        shared: What was sent in SHARE_KEYS, as was everything below in its phase.
        routed: The neighbours' ciphertexts.
    """

    phase: Phase
    call: Call
    share_secret: AgreementKey
    mask_secret: AgreementKey
    self_seed: Seed
    plan: SessionPlan | None = None
    shared: SharedKeys | None = None
    routed: RoutedShares | None = None
    masked: MaskedInput | None = None
    unmask_request: UnmaskRequest | None = None
    revealed: RevealedShares | None = None
    left: LeaveReason | None = None

    def to_bytes(self) -> bytes:
        """Return the deterministic CBOR."""
        return wire.encode(
            {
                0: SNAPSHOT_VERSION,
                1: int(self.phase),
                2: self.call.to_body(),
                3: self.share_secret.export_seed().export_bytes(),
                4: self.mask_secret.export_seed().export_bytes(),
                5: self.self_seed.export_bytes(),
                6: None if self.plan is None else self.plan.to_bytes(),
                7: None if self.shared is None else self.shared.to_body(),
                8: None if self.routed is None else self.routed.to_body(),
                9: None if self.masked is None else self.masked.to_body(),
                10: None if self.unmask_request is None else self.unmask_request.to_body(),
                11: None if self.revealed is None else self.revealed.to_body(),
                12: None if self.left is None else int(self.left),
            }
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> "DeviceState":
        """Read a snapshot.

        Raises:
            WireError: It is damaged or of another version.
        """
        body = wire.as_body(wire.decode(snapshot))
        if sorted(body) != list(range(13)):
            raise WireError("E-SNAPSHOT", "a snapshot with fields 0 to 12", f"{len(body)} fields")
        wire.as_int(body[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        left, phase = body[12], Phase(wire.as_int(body[1], 1, 6))
        missing = [key for key in _NEEDED_FIELDS.get(phase, ()) if body[key] is None]
        if missing:
            raise WireError(
                "E-SNAPSHOT", f"a snapshot with all that phase {phase.name} needs", f"no {missing}"
            )
        return cls(
            phase=phase,
            call=Call.from_body(wire.as_body(body[2])),
            share_secret=AgreementKey.from_seed(_seed(body[3])),
            mask_secret=AgreementKey.from_seed(_seed(body[4])),
            self_seed=_seed(body[5]),
            plan=None if body[6] is None else SessionPlan.from_bytes(wire.as_bytes(body[6])),
            shared=None if body[7] is None else SharedKeys.from_body(wire.as_body(body[7])),
            routed=None if body[8] is None else RoutedShares.from_body(wire.as_body(body[8])),
            masked=None if body[9] is None else MaskedInput.from_body(wire.as_body(body[9])),
            unmask_request=(
                None if body[10] is None else UnmaskRequest.from_body(wire.as_body(body[10]))
            ),
            revealed=(
                None if body[11] is None else RevealedShares.from_body(wire.as_body(body[11]))
            ),
            left=None if left is None else LeaveReason(wire.as_int(left, 1, len(LeaveReason))),
        )


def _seed(value: wire.WireValue) -> Seed:
    return Seed.from_bytes(wire.as_bytes(value, 32))
