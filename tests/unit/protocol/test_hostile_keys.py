"""Defences of a device's keys and terms: new attempts, silent errors, no downgrade (8, 9, 11).

The numbers are those of the twelve defences against a malicious gateway in secagg.md.
"""

import dataclasses
from collections.abc import Callable, Mapping

import pytest

from edgefl.errors import EdgeflError, WireError
from edgefl.privacy.plan_wire import WIRE_FIELDS
from edgefl.protocol.device_session import DeviceSession
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import ALL_PRGS, LeaveReason, Phase, Prg
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.wire import as_body, decode, encode, encode_bitmap
from edgefl.secagg.session import PeerKeys
from tests.device_fixtures import GATEWAY, LIAR, Flash
from tests.device_harness import Table
from tests.epoch_harness import EpochFleet
from tests.hostile_gateway import (
    SEMI,
    VICTIM,
    announce,
    assert_plan_refused,
    signed,
    small,
    small_in,
    with_proof,
)
from tests.played_device import Device
from tests.round_boards import privacy_plan

SMALL_ORDER_KEY = bytes(32)


class TestDefence8NewAttemptsHaveNewKeys:
    """One mask key for one session; stale, replayed and rolled-back rounds are refused."""

    def test_no_key_or_seed_of_an_attempt_comes_back(self) -> None:
        table = small()
        device = announce(table)
        first = (device.sent_of(CheckIn)[0].mask_key.key, device.sent_of(SharedKeys)[0].commitment)
        table.call = dataclasses.replace(table.call, attempt=2, key_index=1)
        table.plan = table.make_plan()
        for name in table.members:
            table.devices[name].sent.clear()
        device = announce(table)
        second = (device.sent_of(CheckIn)[0].mask_key.key, device.sent_of(SharedKeys)[0].commitment)
        assert not set(first) & set(second)

    @pytest.mark.parametrize("loses_power", [False, True])
    def test_a_used_key_index_in_another_call(self, loses_power: bool) -> None:
        table = small()
        device = announce(table)
        if loses_power:
            device.restart(loses_round=True)
        device.sent.clear()
        device.answer(dataclasses.replace(table.call, attempt=2))
        assert device.codes == ["E-KEY-INDEX-USED"]
        assert device.sent == []

    def test_a_replayed_call_after_the_round_is_gone(self) -> None:
        """A second masked input under the same pairwise masks would give away the difference."""
        table = small()
        device = announce(table)
        device.restart(loses_round=True)
        device.sent.clear()
        device.answer(table.call)
        assert device.codes == ["E-KEY-INDEX-USED"]
        assert device.sent == []

    def test_a_call_again_before_there_was_a_plan(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        device = table.devices[VICTIM]
        device.restart(loses_round=True)
        device.answer(table.call)
        assert device.codes == []
        first, second = device.sent_of(CheckIn)
        assert first == second

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"key_epoch": 2}, "E-CALL-EPOCH"),
            ({"key_index": 8}, "E-KEY-INDEX-RANGE"),
        ],
    )
    def test_a_call_for_keys_that_do_not_exist(self, changes: dict[str, int], code: str) -> None:
        table = small()
        device = table.devices[VICTIM]
        device.answer(dataclasses.replace(table.call, **changes))  # type: ignore[arg-type]
        assert device.codes == [code]
        assert device.sent == []

    def test_a_call_before_any_key_epoch_is_open(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        device = table.devices[VICTIM]
        stored = device.flash.round
        device.flash = Flash(epoch=EpochFleet(6).boards[VICTIM].machine.snapshot())
        device.restart()
        device.sent.clear()
        device.answer(table.call)
        assert device.codes == ["E-CALL-EPOCH"]
        assert device.sent == []
        device.flash.round = stored
        with pytest.raises(WireError, match="E-SNAPSHOT"):
            device.restart()

    def test_a_plan_after_the_next_key_epoch_has_opened(self) -> None:
        """The key index of the new key epoch must not be bound to a session of the old one."""
        fleet = EpochFleet(6, mask_keys=8)
        fleet.open_epoch()
        table = small(fleet=fleet)
        device = table.devices[VICTIM]
        device.epoch = fleet.boards[VICTIM].machine
        table.call_members()
        message = table.announcement(VICTIM)
        fleet.open_epoch()
        device.epoch.reserve_index(table.call.key_index, bytes(32))
        device.flash.epoch = device.epoch.snapshot()
        device.say(message)
        assert_plan_refused(device, "E-PLAN-EPOCH")
        use = device.epoch.keys.use_of(table.call.key_index)
        assert use is not None
        assert use.session_id is None

    def test_an_older_snapshot_without_its_key_epoch(self) -> None:
        """The round's snapshot of one key epoch says nothing under another's."""
        table = small_in(Phase.MASKED_INPUT)
        device, fresh = table.devices[VICTIM], small().devices[VICTIM]
        fresh.flash.round = device.flash.round
        with pytest.raises(WireError, match="E-SNAPSHOT"):
            fresh.restart()


class TestDefence9ErrorsCarryNoSecrets:
    """What a device says about a refusal shows no key, seed, share or update."""

    def test_every_refusal(self) -> None:
        secrets: list[bytes] = []
        errors: list[EdgeflError] = []
        hostile: list[Callable[[Table], AggregatorMessage]] = [
            lambda table: table.request(certificate=table.certificate(table.proposal(), [])),
            lambda table: table.request(missing=["d03"]),
            lambda table: table.request(dropped=[VICTIM]),
            lambda table: table.announcement(VICTIM, table.changed(ledger_head=bytes([1] * 32))),
            lambda _: RoutedShares(sharers=b"\x3f", sealed=(bytes(120),) * 5),
            lambda _: UnmaskRequest(survivors=b"", dropped=b"", certificate=None),
        ]
        for make in hostile:
            table = small_in(Phase.UNMASKING, LIAR)
            device = table.devices[VICTIM]
            flash = device.flash.round
            assert flash is not None
            state = DeviceState.from_bytes(flash, device.flash.spool)
            session = DeviceSession(state.require_plan(), state.peers, device.epoch.keys)
            shares = session.open_shares(state.require_routed()).values()
            secrets += [piece for pair in shares for piece in pair]
            secrets.append(state.require_self_seed().export_bytes())
            secrets.append(device.epoch.keys.mask_secret(0).export_seed().export_bytes())
            secrets += [job.update.tobytes() for job in device.mask_jobs]
            device.say(make(table))
            assert device.refused
            errors += device.refused
        shown = "".join(f"{error}{error!r}{error.args!r}" for error in errors)
        for secret in secrets:
            for at in range(0, len(secret) - 6, 6):
                piece = secret[at : at + 6]
                assert piece.hex() not in shown
                assert repr(piece)[2:-1] not in shown


def _plan_and_peers(device: Device) -> tuple[SessionPlan, Mapping[int, PeerKeys]]:
    assert device.flash.round is not None
    state = DeviceState.from_bytes(device.flash.round, device.flash.spool)
    return state.require_plan(), state.peers


def _with_ring_bits(table: Table, ring_bits: int) -> bytes:
    """Encode a plan that no constructor would make."""
    body = dict(as_body(decode(table.plan.to_bytes())))
    privacy = dict(as_body(body[19]))
    (key,) = [key for key, (name, _) in WIRE_FIELDS.items() if name == "ring_bits"]
    privacy[key] = ring_bits
    return encode(body | {19: privacy})


def _bundle_change(**changes: object) -> Callable[[PeerProof], PeerProof]:
    """Change a bundle without its device."""
    return lambda proof: dataclasses.replace(
        proof,
        bundle=dataclasses.replace(proof.bundle, **changes),  # type: ignore[arg-type]
    )


def _signed_change(**changes: object) -> Callable[[PeerProof], PeerProof]:
    return lambda proof: dataclasses.replace(proof, bundle=signed(proof.bundle, **changes))


def _mask_key_change(**changes: object) -> Callable[[PeerProof], PeerProof]:
    return lambda proof: dataclasses.replace(
        proof,
        mask_key=dataclasses.replace(proof.mask_key, **changes),  # type: ignore[arg-type]
    )


class TestDefence11SwappedAndDowngradedTerms:
    """Keys, PRGs, thresholds and modulus: what is swapped, unsigned or weaker is refused."""

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (_bundle_change(share_key=GATEWAY.public_key), "E-BUNDLE-SIGNATURE"),
            (_bundle_change(mask_root=bytes(32)), "E-BUNDLE-SIGNATURE"),
            (_bundle_change(prgs=3), "E-BUNDLE-SIGNATURE"),
            (_bundle_change(signature=bytes(64)), "E-BUNDLE-SIGNATURE"),
            (_bundle_change(device="d04"), "E-PEER-IDENTITY"),
            (_bundle_change(identity_key=GATEWAY.public_key), "E-PEER-IDENTITY"),
            (_signed_change(key_epoch=2), "E-PEER-EPOCH"),
            (_signed_change(roster_hash=bytes(32)), "E-PEER-EPOCH"),
            (_signed_change(share_key=SMALL_ORDER_KEY), "E-PUBLIC-KEY"),
            (_mask_key_change(key=GATEWAY.public_key), "E-MASK-KEY-PATH"),
            (_mask_key_change(path=()), "E-MASK-KEY-PATH"),
            (_mask_key_change(index=1), "E-PEER-INDEX"),
        ],
    )
    def test_a_neighbours_keys(self, change: Callable[[PeerProof], PeerProof], code: str) -> None:
        table = small_in(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, with_proof(table, 2, change)), code)

    def test_a_prg_that_is_not_known(self) -> None:
        with pytest.raises(WireError, match="E-PLAN-PRGS"):
            small().changed(prgs=ALL_PRGS | 4)

    def test_the_mandatory_prg_left_out(self) -> None:
        with pytest.raises(WireError, match="E-PLAN-PRGS"):
            small().changed(prgs=Prg.AES_128_CTR.bit)

    def test_the_threshold_of_a_complete_graph(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        weak = dataclasses.replace(table.plan.thresholds, neighbourhood=3)
        message = table.announcement(VICTIM, table.changed(thresholds=weak))
        assert_plan_refused(announce(table, message), "E-PLAN-THRESHOLDS")

    def test_a_floor_that_nobody_could_be_unmasked_with(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        low = dataclasses.replace(table.plan.thresholds, survivor_floor=4)
        plan = table.changed(thresholds=low, privacy=privacy_plan(6, 4, 7, 0.0, 1))
        device = announce(table, table.announcement(VICTIM, plan))
        assert_plan_refused(device, "E-PLAN-THRESHOLDS")

    def test_an_epsilon_that_is_understated(self) -> None:
        table = small(noise=0.4).run_to(Phase.SHARE_KEYS)
        privacy = dataclasses.replace(table.plan.privacy, epsilon_declared=0.5)
        message = table.announcement(VICTIM, table.changed(privacy=privacy))
        assert_plan_refused(announce(table, message), "E-PLAN-EPSILON")

    def test_a_ring_in_which_the_sum_could_overflow(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        assert _with_ring_bits(table, table.plan.ring_bits) == honest.plan
        narrow = _with_ring_bits(table, 8)
        device = announce(table, dataclasses.replace(honest, plan=narrow))
        assert [type(error) for error in device.refused] == [WireError]
        assert device.sent_of(SharedKeys) == []

    def test_an_edge_that_does_not_open_in_the_strong_classes(self) -> None:
        for adversary in (SEMI, LIAR):
            table = small_in(Phase.MASKED_INPUT, adversary)
            device = table.devices[VICTIM]
            device.say(_spoilt(table.routed(VICTIM), 2))
            assert device.codes == ["E-SHARES-SEALED"]
            assert device.sent_of(MaskedInput) == []

    def test_an_edge_that_does_not_open_is_passed_over_by_the_curious(self) -> None:
        table = small_in(Phase.MASKED_INPUT)
        device = table.devices[VICTIM]
        device.say(_spoilt(table.routed(VICTIM), 2))
        (masked,) = device.sent_of(MaskedInput)
        (skipped,) = masked.skipped
        other = table.devices["d03"]
        session = DeviceSession(*_plan_and_peers(other), other.epoch.keys)
        (seed,) = session.session.pairwise_seeds(
            other.epoch.keys.mask_secret(0), table.position("d03"), [table.position(VICTIM)]
        )
        assert skipped == (table.position("d03"), seed.export_bytes())
        assert table.position("d03") not in device.mask_jobs[0].neighbours

    @pytest.mark.parametrize("n_spoilt", [1, 2])
    def test_so_many_that_the_threshold_is_lost(self, n_spoilt: int) -> None:
        table = small_in(Phase.MASKED_INPUT)
        device, routed = table.devices[VICTIM], table.routed(VICTIM)
        for index in range(n_spoilt):
            routed = _spoilt(routed, index)
        device.say(routed)
        assert device.codes == ([] if n_spoilt == 1 else ["E-SHARES-NEIGHBOURS"])

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (
                lambda routed: dataclasses.replace(routed, sealed=routed.sealed[:-1]),
                "E-SHARES-COUNT",
            ),
            (
                lambda routed: dataclasses.replace(
                    routed, sealed=(*routed.sealed, routed.sealed[0])
                ),
                "E-SHARES-COUNT",
            ),
            (
                lambda routed: dataclasses.replace(routed, sealed=routed.sealed[::-1]),
                "E-SHARES-NEIGHBOURS",
            ),
            (
                lambda routed: dataclasses.replace(
                    routed, sharers=encode_bitmap([False, *[True] * 5])
                ),
                "E-SHARES-SELF",
            ),
            (lambda routed: dataclasses.replace(routed, sharers=b"\xff"), "E-WIRE-BITMAP"),
        ],
    )
    def test_routed_shares(self, change: Callable[[RoutedShares], RoutedShares], code: str) -> None:
        table = small_in(Phase.MASKED_INPUT)
        device = table.devices[VICTIM]
        device.say(change(table.routed(VICTIM)))
        assert device.codes == [code]
        assert device.leaves == [LeaveReason.REQUEST_REFUSED.name]
        assert device.sent_of(MaskedInput) == []

    def test_a_second_list_of_sharers_changes_nothing(self) -> None:
        table = small_in(Phase.UNMASKING)
        device = table.devices[VICTIM]
        device.say(table.routed(VICTIM, missing=["d05"]))
        assert device.codes == ["E-CONTRADICTION"]
        assert device.leaves == []
        device.say(table.request())
        assert len(device.sent_of(RevealedShares)) == 1


def _spoilt(routed: RoutedShares, index: int) -> RoutedShares:
    damaged = bytearray(routed.sealed[index])
    damaged[50] ^= 1
    sealed = (*routed.sealed[:index], bytes(damaged), *routed.sealed[index + 1 :])
    return dataclasses.replace(routed, sealed=sealed)
