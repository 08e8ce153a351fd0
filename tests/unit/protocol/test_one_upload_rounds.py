"""One-upload rounds with honest devices: exact sums, silence in each phase, kills, bad sealers."""

import dataclasses

import numpy as np
import pytest

from edgefl._native import combine_shares
from edgefl.errors import LocalProtocolError, WireError
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.one_upload_aggregator import OneUploadAggregator
from edgefl.protocol.one_upload_deposits import DepositBook
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, Phase
from edgefl.protocol.round_messages import RevealedShares, SurvivorVote
from tests.one_upload_harness import OneUploadHarness
from tests.round_boards import Device

CURIOUS, SEMI, MALICIOUS = AdversaryClass
SPARSE = {"corrupt_permille": 50, "drop_permille": 100}


def check_sum(harness: OneUploadHarness) -> None:
    outcome = harness.outcome
    assert outcome is not None
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.report.sum_check_held
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def uploads_of(device: Device) -> list[OneUpload]:
    return [message for _, message in device.sent if isinstance(message, OneUpload)]


def silence(harness: OneUploadHarness, *names: str) -> None:
    for name in names:
        harness.silence(harness.devices[name])
        harness.say_offline(name)


@pytest.mark.parametrize("adversary", AdversaryClass)
@pytest.mark.parametrize("n_devices", [3, 8, 24])
def test_a_round_gives_the_exact_sum(adversary: AdversaryClass, n_devices: int) -> None:
    options = SPARSE if n_devices == 24 else {}
    harness = OneUploadHarness(n_devices, adversary=adversary, **options)
    harness.run_to_end()
    check_sum(harness)
    assert harness.outcome is not None
    assert len(harness.outcome.report.survivors) == n_devices
    assert harness.bad_messages == []


def test_weights_are_summed() -> None:
    harness = OneUploadHarness(6, weight_bound=9)
    outcome = harness.run_to_end()
    check_sum(harness)
    assert outcome.total_weight == harness.survivors_weight(outcome)


def test_an_ordinary_device_publishes_once_a_round() -> None:
    harness = OneUploadHarness(24, **SPARSE)
    for _ in range(2):
        harness.run_to_end()
        committee = set(harness.committee)
        assert 0 < len(committee) < 24
        for name, device in harness.devices.items():
            kinds = [type(message) for _, message in device.sent]
            more = [SurvivorVote, RevealedShares] if name in committee else []
            assert kinds == [OneUpload, *more]
            device.sent.clear()
        harness.start_attempt()


def test_who_was_silent_is_not_in_the_next_cohort_unless_it_deposits() -> None:
    harness = OneUploadHarness(8, floor=6)
    late, gone = "d01", "d02"
    silence(harness, late, gone)
    harness.run_to_end()
    check_sum(harness)
    harness.devices[late].is_silent = False
    assert harness.next_deposits is not None
    assert harness.next_deposits.devices == set(harness.devices) - {late, gone}
    harness.call_for_deposit(late)
    harness.deliver_all()
    harness.deliver_all()
    harness.start_attempt()
    harness.run_to_end()
    check_sum(harness)
    assert harness.outcome is not None
    assert set(harness.outcome.report.survivors) == set(harness.devices) - {gone}


def test_members_without_a_deposit_stand_on_the_ring_of_a_malicious_plan() -> None:
    absent = {"d03", "d11"}
    harness = OneUploadHarness(24, adversary=MALICIOUS, floor=16, without_deposit=absent, **SPARSE)
    harness.run_to_end()
    check_sum(harness)
    assert harness.outcome is not None
    assert set(harness.outcome.report.survivors) == set(harness.devices) - absent


class TestSilence:
    """A round stands as long as its thresholds do, whoever falls silent, and when."""

    @pytest.mark.parametrize("adversary", AdversaryClass)
    @pytest.mark.parametrize("left", [5, 6, 7])
    def test_before_the_upload(self, adversary: AdversaryClass, left: int) -> None:
        harness = OneUploadHarness(8, floor=6, adversary=adversary)
        silence(harness, *sorted(harness.devices)[left:])
        harness.run_to_end()
        assert harness.outcome is not None
        if left < 6:
            assert harness.outcome.report.abort_reason is AbortReason.BELOW_SURVIVOR_FLOOR
            assert harness.outcome.total is None
        else:
            check_sum(harness)
            assert len(harness.outcome.report.survivors) == left

    @pytest.mark.parametrize("phase", [Phase.CERTIFICATE, Phase.UNMASKING])
    @pytest.mark.parametrize("missing", [-1, 0, 1])
    def test_of_committee_members(self, phase: Phase, missing: int) -> None:
        """Exactly as many as the threshold suffice, since a member holds its own share too."""
        harness = OneUploadHarness(24, **SPARSE)
        harness.run_until(Phase.CERTIFICATE)
        committee, threshold = harness.committee, harness.deposits.committee.threshold
        if phase is Phase.UNMASKING:
            harness.run_until(phase)
            harness.charge()
        silence(harness, *committee[threshold + missing :])
        outcome = harness.run_to_end()
        if missing < 0:
            expected = {
                Phase.CERTIFICATE: AbortReason.TOO_FEW_SIGNATURES,
                Phase.UNMASKING: AbortReason.TOO_FEW_UNMASKED,
            }
            assert outcome.report.abort_reason is expected[phase]
            assert outcome.total is None
        else:
            check_sum(harness)

    def test_of_everybody_else_after_the_upload_costs_nothing(self) -> None:
        harness = OneUploadHarness(24, **SPARSE)
        harness.run_until(Phase.CERTIFICATE)
        silence(harness, *sorted(set(harness.devices) - set(harness.committee)))
        outcome = harness.run_to_end()
        check_sum(harness)
        assert len(outcome.report.survivors) == 24

    def test_below_the_committee_threshold_nothing_is_proposed(self) -> None:
        harness = OneUploadHarness(24, floor=16, **SPARSE)
        threshold = harness.deposits.committee.threshold
        silence(harness, *harness.committee[threshold - 1 :])
        outcome = harness.run_to_end()
        assert outcome.report.abort_reason is AbortReason.TOO_FEW_SIGNATURES
        assert harness.kinds_by_index == {}

    def test_a_survivor_with_too_few_neighbours_ends_the_round(self) -> None:
        harness = OneUploadHarness(24, **SPARSE)
        plan, graph = harness.aggregator.plan, harness.graph
        assert plan is not None
        keep = plan.thresholds.neighbourhood - 1
        victim = harness.position_of("d00")
        silence(harness, *(harness.name_of(peer) for peer in graph.neighbours(victim)[keep:]))
        outcome = harness.run_to_end()
        assert outcome.report.abort_reason is AbortReason.NEIGHBOURHOOD_LOST
        assert harness.kinds_by_index == {}

    def test_a_late_voter_is_asked_as_well(self) -> None:
        harness = OneUploadHarness(24, **SPARSE)
        harness.run_until(Phase.CERTIFICATE)
        late = harness.committee[-1]
        harness.packets = [packet for packet in harness.packets if packet.device != late]
        harness.run_until(Phase.UNMASKING)
        for member in harness.committee[:2]:
            silence(harness, member)
        harness.run_to_end()
        check_sum(harness)
        assert [type(message) for _, message in harness.devices[late].sent][1:] == [
            SurvivorVote,
            RevealedShares,
        ]


class TestDishonestDevices:
    def test_a_lying_holder_is_survived_and_named(self) -> None:
        harness = OneUploadHarness(8)
        harness.run_until(Phase.UNMASKING)
        harness.charge()
        harness.deliver_all()
        liar = harness.devices["d04"]
        harness.settle(liar)
        (revealed,) = [m for _, m in liar.sent if isinstance(m, RevealedShares)]
        wrong = tuple((owner, bytes(5) + share[5:]) for owner, share in revealed.shares)
        harness.packets = [packet for packet in harness.packets if packet.device != "d04"]
        plan = harness.aggregator.plan
        assert plan is not None
        harness.tell(
            DeviceSaid(
                device="d04",
                session_id=plan.session_id,
                message=RevealedShares(shares=wrong),
            )
        )
        outcome = harness.run_to_end()
        check_sum(harness)
        assert outcome.report.liars == ("d04",)

    def test_who_seals_what_does_not_open_ends_the_round_and_is_named(self) -> None:
        harness = OneUploadHarness(8)
        plan = harness.aggregator.plan
        assert plan is not None
        harness.deliver_all()
        bad = harness.devices["d05"]
        for _ in range(3):
            harness.settle(bad)
            harness.work(bad)
        harness.settle(bad)
        (upload,) = uploads_of(bad)
        harness.packets.clear()
        garbled = dataclasses.replace(
            upload, sealed=tuple(bytes(len(sealed)) for sealed in upload.sealed)
        )
        harness.tell(DeviceSaid(device="d05", session_id=plan.session_id, message=garbled))
        outcome = harness.run_to_end()
        assert outcome.report.abort_reason is AbortReason.TOO_FEW_UNMASKED
        assert outcome.report.liars == ("d05",)

    @pytest.mark.parametrize("change", ["fewer", "packed", "deposit", "twice"])
    def test_a_broken_upload_removes_its_sender_alone(self, change: str) -> None:
        harness = OneUploadHarness(8)
        plan = harness.aggregator.plan
        assert plan is not None
        harness.deliver_all()
        bad = harness.devices["d05"]
        for _ in range(3):
            harness.settle(bad)
            harness.work(bad)
        harness.settle(bad)
        (upload,) = uploads_of(bad)
        assert upload.next_deposit is not None
        wrong_key = dataclasses.replace(upload.next_deposit.mask_key, index=3)
        changed = {
            "fewer": dataclasses.replace(upload, sealed=upload.sealed[1:]),
            "packed": dataclasses.replace(upload, packed=upload.packed[1:]),
            "deposit": dataclasses.replace(
                upload,
                next_deposit=dataclasses.replace(upload.next_deposit, mask_key=wrong_key),
            ),
            "twice": dataclasses.replace(upload, commitment=bytes(32)),
        }[change]
        if change == "twice":
            harness.deliver_all()
        else:
            harness.packets = [packet for packet in harness.packets if packet.device != "d05"]
        harness.tell(DeviceSaid(device="d05", session_id=plan.session_id, message=changed))
        assert [name for name, _ in harness.bad_messages] == ["d05"]
        outcome = harness.run_to_end()
        check_sum(harness)
        assert ("d05" in outcome.report.survivors) == (change == "twice")


class TestGateway:
    def test_a_book_survives_a_restart(self) -> None:
        harness = OneUploadHarness(8)
        again = DepositBook(harness.keys, 0, harness.terms)
        again.restore(harness.deposits.to_bytes())
        assert again.devices == harness.deposits.devices
        assert again.to_bytes() == harness.deposits.to_bytes()
        for other in (
            DepositBook(harness.keys, 1, harness.terms),
            DepositBook(harness.keys, 0, dataclasses.replace(harness.terms, drop_permille=1)),
        ):
            with pytest.raises(WireError):
                other.restore(harness.deposits.to_bytes())

    def test_no_cohort_is_chosen_among_those_who_deposited(self) -> None:
        harness = OneUploadHarness(8, floor=6)
        setup = dataclasses.replace(harness.setup(), population=harness.deposits.devices - {"d03"})
        with pytest.raises(LocalProtocolError) as caught:
            OneUploadAggregator(
                setup=setup,
                deposits=harness.deposits,
                next_deposits=None,
                offline=frozenset(),
                now_s=0.0,
            )
        assert caught.value.code == "E-SETUP-SAMPLED"

    def test_the_last_index_asks_for_no_deposit(self) -> None:
        harness = OneUploadHarness(3)
        harness.run_to_end()
        while harness.next_deposits is not None:
            harness.start_attempt()
            harness.run_to_end()
            check_sum(harness)
        last = [uploads_of(device)[-1] for device in harness.devices.values()]
        assert [upload.next_deposit for upload in last] == [None] * 3


class TestKills:
    """Killed between any two effects, a device sends the same bytes again, or nothing."""

    @pytest.mark.parametrize("effects", [0, 1, 2, 3])
    def test_on_the_way_to_the_first_deposit(self, effects: int) -> None:
        harness = OneUploadHarness(8, without_deposit={"d02"}, floor=6)
        book, device = harness.books[0], harness.devices["d02"]
        harness.deposit(device, book.call_to("d02"), effects_before_death=effects)
        harness.resend_deposit(device)
        harness.resend_deposit(device)
        versions = harness.deposits_sent.get(("d02", 0), set())
        # Marked and not yet written: the index is lost rather than used twice.
        assert len(versions) == (0 if effects <= 1 else 1)

    @pytest.mark.parametrize("effects", range(11))
    def test_in_a_round(self, effects: int) -> None:
        """Committee members do all there is to do; everybody is one in a small fleet."""
        harness = OneUploadHarness(6, floor=5)
        device, done = harness.devices["d02"], 0
        for _ in range(12):
            harness.deliver_all()
            while device.effects or device.jobs:
                if done == effects:
                    harness.crash(device)
                    harness.restart(device)
                done += 1
                harness.step(device) if device.effects else harness.work(device)
            harness.progress()
        harness.run_to_end()
        check_sum(harness)
        assert done > effects
        for kind in (OneUpload, SurvivorVote, RevealedShares):
            assert len({message for _, message in device.sent if isinstance(message, kind)}) <= 1

    def test_without_its_record_a_device_takes_no_part(self) -> None:
        harness = OneUploadHarness(8, floor=6)
        harness.deliver_all()
        device = harness.devices["d02"]
        for _ in range(3):
            harness.settle(device)
            harness.work(device)
        harness.crash(device)
        device.flash = None
        harness.ask_again("d02")
        harness.deliver_all_down()
        assert device.machine is None
        assert [error.code for error in device.refused] == ["E-KEY-INDEX-USED"]


def test_shares_of_a_late_upload_stay_sealed() -> None:
    """What arrives after its sender was called dropped adds nothing, and opens nothing."""
    harness = OneUploadHarness(8, floor=6)
    harness.deliver_all()
    late = harness.devices["d07"]
    for device in harness.devices.values():
        harness.settle(device)
        harness.work(device)
        harness.settle(device)
        harness.work(device)
        harness.settle(device)
    held = [packet for packet in harness.packets if packet.device == "d07"]
    harness.packets = [packet for packet in harness.packets if packet.device != "d07"]
    harness.say_offline("d07")
    harness.run_until(Phase.UNMASKING)
    harness.packets += held
    outcome = harness.run_to_end()
    check_sum(harness)
    assert "d07" not in outcome.report.survivors
    assert outcome.report.dropouts[0].reason is DropReason.OFFLINE
    owner = harness.keys.epoch_position_of(late.name)
    assert owner is not None
    assert harness.kinds_by_index[0, owner] == {"MASK_KEY"}


def test_the_deposited_shares_are_of_the_mask_key_and_too_few_say_nothing() -> None:
    harness = OneUploadHarness(8)
    harness.run_until(Phase.UNMASKING)
    committee = harness.deposits.committee
    owner = harness.devices["d00"]
    secret = owner.epoch.keys.mask_secret(0).export_seed().export_bytes()
    found = harness.opened_deposits("d00")
    assert len(found) == len(committee.members) - 1
    points = [(1 + holder, share) for holder, share in sorted(found.items())]
    least = committee.threshold
    assert combine_shares(points[:least], least).export_bytes() == secret
    assert combine_shares(points[1 : 1 + least], least).export_bytes() == secret
