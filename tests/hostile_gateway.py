"""Tables that a hostile gateway is played at, and what a device must show for its refusal."""

import dataclasses
import functools
from collections.abc import Callable

from edgefl.protocol.key_bundle import KeyBundle
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.reasons import AdversaryClass, LeaveReason, Phase
from edgefl.protocol.round_messages import PlanAnnouncement, RevealedShares, SharedKeys
from tests.device_fixtures import CURIOUS, LIAR
from tests.device_harness import Table
from tests.epoch_harness import FLEET, signing_key
from tests.played_device import Device

VICTIM = "d00"
SEMI = AdversaryClass.SEMI_MALICIOUS


def small(adversary: AdversaryClass = CURIOUS, **changes: object) -> Table:
    """Return six devices in a complete graph."""
    return Table(6, adversary=adversary, **changes)  # type: ignore[arg-type]


def sparse(**changes: object) -> Table:
    """Return 24 devices in a sparse graph, with a committee of 7 of whom 5 must sign."""
    terms: dict[str, object] = {
        "adversary": LIAR,
        "floor": 16,
        "corrupt_permille": 50,
        "drop_permille": 100,
    }
    return Table(24, **(terms | changes))  # type: ignore[arg-type]


def small_in(phase: Phase, adversary: AdversaryClass = CURIOUS) -> Table:
    """Return `small`, run to a phase."""
    return _small_run_to(phase, adversary).twin()


def sparse_in(phase: Phase) -> Table:
    """Return `sparse`, run to a phase."""
    return _sparse_run_to(phase).twin()


@functools.cache
def _small_run_to(phase: Phase, adversary: AdversaryClass) -> Table:
    return small(adversary).run_to(phase)


@functools.cache
def _sparse_run_to(phase: Phase) -> Table:
    return sparse().run_to(phase)


def announce(table: Table, message: PlanAnnouncement | None = None) -> Device:
    """Call everybody, and give the victim a plan."""
    table.run_to(Phase.SHARE_KEYS)
    device = table.devices[VICTIM]
    device.say(message or table.announcement(VICTIM))
    return device


def with_proof(
    table: Table, index: int, change: Callable[[PeerProof], PeerProof]
) -> PlanAnnouncement:
    """Change the proof of one neighbour of the victim in the announcement."""
    honest = table.announcement(VICTIM)
    peers = list(honest.peers)
    peers[index] = (peers[index][0], change(peers[index][1]))
    return dataclasses.replace(honest, peers=tuple(peers))


def signed(bundle: KeyBundle, **changes: object) -> KeyBundle:
    """Return a bundle that its own device, being corrupt, signed with other content."""
    changed = dataclasses.replace(bundle, **changes)  # type: ignore[arg-type]
    return changed.signed_by(FLEET, signing_key(bundle.device))


def assert_plan_refused(device: Device, code: str) -> None:
    assert device.codes == [code]
    assert device.leaves == [LeaveReason.PLAN_REFUSED.name]
    assert device.sent_of(SharedKeys) == []
    assert device.machine is None


def assert_nothing_revealed(device: Device, code: str) -> None:
    assert device.codes == [code]
    assert device.leaves == [LeaveReason.REQUEST_REFUSED.name]
    assert device.sent_of(RevealedShares) == []
