"""What a device refuses of a hostile gateway in the one-upload mode."""

import dataclasses

import pytest

from edgefl._native import Seed
from edgefl.errors import RemoteProtocolError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.one_upload_deposits import DepositBook
from edgefl.protocol.one_upload_device import OneUploadRound
from edgefl.protocol.one_upload_messages import OneUploadAnnouncement
from edgefl.protocol.one_upload_sharing import (
    CommitteeChannels,
    SealedShare,
    SealingKey,
    ShareContext,
    ShareKind,
)
from edgefl.protocol.one_upload_sizes import DepositTerms
from edgefl.protocol.reasons import AdversaryClass, Phase, RoundMode
from edgefl.protocol.wire import encode_bitmap
from tests.epoch_harness import signing_key
from tests.one_upload_harness import EXPERIMENTAL, OneUploadHarness
from tests.one_upload_liar import (
    CURIOUS,
    MALICIOUS,
    SPARSE,
    VICTIM,
    Gateway,
    opened,
    revealed,
    voted,
)
from tests.round_boards import POLICY, privacy_plan


@pytest.mark.parametrize("adversary", AdversaryClass)
def test_what_is_honest_is_answered(adversary: AdversaryClass) -> None:
    gateway = opened(adversary)
    lists = gateway.proposal(VICTIM)
    assert voted(gateway.say(VICTIM, lists))
    (answer,) = revealed(gateway.say(VICTIM, gateway.request(lists)))
    assert [owner for owner, _ in answer.shares] == list(range(8))
    assert gateway.codes(VICTIM) == []


class TestLists:
    def test_two_lists_to_two_halves_get_no_two_certificates(self) -> None:
        """Each member signs one list; no half reaches the threshold."""
        gateway = opened(MALICIOUS)
        threshold = gateway.plan.thresholds.certificate
        for half, dropped in ((gateway.members[:4], "d07"), (gateway.members[4:7], "d00")):
            votes = sum(
                voted(gateway.say(name, gateway.proposal(name, [dropped]))) for name in half
            )
            assert votes == len(half) < threshold

    def test_a_second_list_is_not_signed(self) -> None:
        gateway = opened()
        assert voted(gateway.say(VICTIM, gateway.proposal(VICTIM, ["d07"])))
        assert not gateway.say(VICTIM, gateway.proposal(VICTIM, ["d06"]))
        assert gateway.codes(VICTIM) == ["E-CONTRADICTION"]

    def test_a_certificate_over_other_lists_than_it_signed_is_not_answered(self) -> None:
        """Even if all others had signed them."""
        gateway = opened()
        gateway.say(VICTIM, gateway.proposal(VICTIM, ["d07"]))
        others = [name for name in gateway.harness.committee if name != VICTIM]
        request = gateway.request(gateway.proposal(VICTIM, ["d06"]), others)
        assert not gateway.say(VICTIM, request)
        assert gateway.codes(VICTIM) == ["E-CONTRADICTION"]

    def test_one_answer_and_the_same_again(self) -> None:
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        gateway.say(VICTIM, lists)
        first = revealed(gateway.say(VICTIM, gateway.request(lists)))
        assert revealed(gateway.say(VICTIM, gateway.request(lists))) == first
        other = gateway.request(gateway.proposal(VICTIM, ["d06"]))
        assert not gateway.say(VICTIM, other)

    def test_no_request_before_its_own_vote(self) -> None:
        gateway = opened()
        assert not gateway.say(VICTIM, gateway.request(gateway.proposal(VICTIM)))
        assert gateway.codes(VICTIM) == ["E-UNEXPECTED"]
        assert gateway.device(VICTIM).machine is not None
        assert voted(gateway.say(VICTIM, gateway.proposal(VICTIM)))

    @pytest.mark.parametrize(
        ("dropped", "code"), [([VICTIM], "E-UNMASK-SELF"), (["d05", "d06", "d07"], "E-UNMASK-FEW")]
    )
    def test_lists_that_cannot_be_true_or_leave_too_few(
        self, dropped: list[str], code: str
    ) -> None:
        gateway = opened()
        assert not voted(gateway.say(VICTIM, gateway.proposal(VICTIM, dropped)))
        assert gateway.codes(VICTIM) == [code]

    def test_a_device_in_both_lists_or_in_none(self) -> None:
        for change in ("both", "none"):
            gateway = opened()
            lists = gateway.proposal(VICTIM, ["d07"])
            everybody = encode_bitmap([True] * 8)
            wrong = (
                dataclasses.replace(lists, survivors=everybody)
                if change == "both"
                else dataclasses.replace(lists, dropped=bytes(1))
            )
            assert not voted(gateway.say(VICTIM, wrong))
            assert gateway.codes(VICTIM) == [f"E-UNMASK-{'BOTH' if change == 'both' else 'LISTS'}"]

    @pytest.mark.parametrize("adversary", AdversaryClass)
    def test_a_victim_is_not_cut_off_by_calling_its_neighbours_dropped(
        self, adversary: AdversaryClass
    ) -> None:
        """Nobody near the victim is needed to unmask it here, so the committee has to look."""
        gateway = opened(adversary, 24, **SPARSE)
        graph = gateway.harness.graph
        near = {gateway.members[peer] for peer in graph.neighbours(0)}
        member = next(name for name in gateway.harness.committee if name not in {*near, "d00"})
        assert not voted(gateway.say(member, gateway.proposal(member, near)))
        assert gateway.codes(member)[0] in {"E-UNMASK-NEIGHBOURS", "E-UNMASK-WINDOW"}

    def test_lists_before_the_own_upload(self) -> None:
        gateway = Gateway(OneUploadHarness(8))
        honest = Gateway(OneUploadHarness(8)).collect_uploads()
        gateway.harness.deliver_all()
        assert not voted(gateway.say(VICTIM, honest.proposal(VICTIM)))
        assert gateway.codes(VICTIM) == ["E-UNMASK-EARLY"]

    def test_a_device_outside_the_committee_signs_nothing(self) -> None:
        gateway = opened(CURIOUS, 24, **SPARSE)
        outsider = next(name for name in gateway.members if name not in gateway.harness.committee)
        inside = gateway.proposal(gateway.harness.committee[0])
        assert not voted(gateway.say(outsider, inside))
        assert gateway.codes(outsider) == ["E-CERTIFICATE-SEAT"]


class TestCertificate:
    @pytest.mark.parametrize("adversary", AdversaryClass)
    def test_every_class_asks_for_one(self, adversary: AdversaryClass) -> None:
        gateway = opened(adversary)
        lists = gateway.proposal(VICTIM)
        gateway.say(VICTIM, lists)
        request = dataclasses.replace(gateway.request(lists), certificate=None)
        assert not revealed(gateway.say(VICTIM, request))
        assert gateway.codes(VICTIM) == ["E-CERTIFICATE-MISSING"]

    def test_too_few_signatures(self) -> None:
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        gateway.say(VICTIM, lists)
        few = gateway.harness.committee[: gateway.plan.thresholds.certificate - 1]
        assert not revealed(gateway.say(VICTIM, gateway.request(lists, few)))
        assert gateway.codes(VICTIM) == ["E-CERTIFICATE-FEW"]

    def test_signatures_of_another_committee(self) -> None:
        gateway = opened(CURIOUS, 24, **SPARSE)
        member = gateway.harness.committee[0]
        lists = gateway.proposal(member)
        gateway.say(member, lists)
        others = [name for name in gateway.members if name not in gateway.harness.committee]
        request = gateway.request(lists, others[: gateway.plan.thresholds.certificate])
        assert not revealed(gateway.say(member, request))
        assert gateway.codes(member) == ["E-CERTIFICATE-SIGNER"]

    def test_signatures_of_another_session(self) -> None:
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        gateway.say(VICTIM, lists)
        replayed = gateway.request(lists, session_id=bytes(32))
        assert not revealed(gateway.say(VICTIM, replayed))
        assert gateway.codes(VICTIM) == ["E-CERTIFICATE-SIGNATURE"]


class TestShares:
    def test_a_mask_key_share_in_place_of_a_seed_share_stays_sealed(self) -> None:
        """The kind is in the context: lists that call a device alive open no mask key."""
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        swapped = dataclasses.replace(lists, sealed=gateway.proposal(VICTIM, ["d05"]).sealed)
        gateway.say(VICTIM, swapped)
        (answer,) = revealed(gateway.say(VICTIM, gateway.request(swapped)))
        assert gateway.members.index("d05") not in dict(answer.shares)
        assert len(answer.shares) == 7

    @pytest.mark.parametrize("keys_too", [False, True])
    def test_shares_of_another_owner_stay_sealed(self, *, keys_too: bool) -> None:
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        rotated = dataclasses.replace(
            lists,
            sealed=(*lists.sealed[1:], lists.sealed[0]),
            owners=(*lists.owners[1:], lists.owners[0]) if keys_too else lists.owners,
        )
        gateway.say(VICTIM, rotated)
        (answer,) = revealed(gateway.say(VICTIM, gateway.request(rotated)))
        assert [owner for owner, _ in answer.shares] == [gateway.members.index(VICTIM)]

    def test_a_share_opens_under_its_own_kind_index_and_session_alone(self) -> None:
        harness = OneUploadHarness(8)
        sender, holder = (harness.devices[name].epoch.keys for name in ("d00", VICTIM))
        committee = harness.deposits.committee
        proofs = {
            member: harness.keys.member_proof(harness.keys.devices[member])
            for member in committee.members
        }
        made = ShareContext(key_index=1, kind=ShareKind.SELF_SEED, session_id=bytes(32))
        shared = CommitteeChannels(sender).share(
            Seed.from_bytes(bytes(32)),
            committee,
            {member: SealingKey.of(proof) for member, proof in proofs.items()},
            made,
            Seed.from_bytes(bytes(32)),
        )
        sealed = shared.sealed[committee.others(0).index(holder.epoch_position)]
        for context, opens in (
            (made, True),
            (dataclasses.replace(made, kind=ShareKind.MASK_KEY), False),
            (dataclasses.replace(made, key_index=2), False),
            (dataclasses.replace(made, session_id=b"\1" * 32), False),
        ):
            share = SealedShare(owner_key=SealingKey.of(proofs[0]), context=context, sealed=sealed)
            assert (0 in CommitteeChannels(holder).open_all({0: share})) == opens

    def test_made_up_owner_keys_are_not_remembered(self) -> None:
        """Else the next deposit would be sealed for the gateway instead of for the holder."""
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        stranger = signing_key("stranger").public_key
        gateway.harness.crash(gateway.device(VICTIM))
        gateway.harness.restart(gateway.device(VICTIM))
        keys = gateway.device(VICTIM).epoch.keys
        assert not keys.pair_secrets
        forged = tuple(
            SealingKey(share_key=stranger, bundle_sha256=owner.bundle_sha256)
            for owner in lists.owners
        )
        faked = dataclasses.replace(lists, owners=forged)
        gateway.say(VICTIM, faked)
        (answer,) = revealed(gateway.say(VICTIM, gateway.request(faked)))
        assert len(answer.shares) == 1
        assert not keys.pair_secrets

    def test_too_many_or_too_few_ciphertexts(self) -> None:
        gateway = opened()
        lists = gateway.proposal(VICTIM)
        assert not voted(gateway.say(VICTIM, dataclasses.replace(lists, sealed=lists.sealed[1:])))
        assert gateway.codes(VICTIM) == ["E-PROPOSAL-COUNT"]


class TestPlan:
    def refusal(self, gateway: Gateway, message: OneUploadAnnouncement) -> str:
        device = gateway.device(VICTIM)
        gateway.harness.take_part(device, message)
        assert device.machine is None
        assert device.sent == []
        return gateway.codes(VICTIM)[-1]

    def gateway(self, **options: int) -> Gateway:
        gateway = Gateway(OneUploadHarness(8, **options))
        gateway.harness.packets.clear()
        return gateway

    def test_other_terms_than_those_of_the_deposit(self) -> None:
        """They would ask another committee for the shares."""
        gateway = self.gateway()
        plan = dataclasses.replace(gateway.plan, drop_permille=1)
        assert self.refusal(gateway, gateway.announcement(plan=plan)) == "E-PLAN-CALL"

    def test_an_index_without_a_deposit(self) -> None:
        gateway = self.gateway()
        harness = gateway.harness
        other = DepositBook(harness.keys, 3, harness.terms)
        plan = dataclasses.replace(gateway.plan, key_index=3, call_id=other.deposit_id)
        assert self.refusal(gateway, gateway.announcement(plan=plan)) == "E-PLAN-DEPOSIT"

    def test_a_second_session_of_the_same_index(self) -> None:
        gateway = Gateway(OneUploadHarness(8))
        gateway.harness.deliver_all()
        device = gateway.device(VICTIM)
        assert device.machine is not None
        device.machine = None
        plan = dataclasses.replace(gateway.plan, attempt=2)
        gateway.harness.take_part(device, gateway.announcement(plan=plan))
        assert gateway.codes(VICTIM) == ["E-KEY-INDEX-USED"]

    def test_a_second_plan_while_the_first_is_worked_on(self) -> None:
        gateway = Gateway(OneUploadHarness(8))
        gateway.harness.deliver_all()
        plan = dataclasses.replace(gateway.plan, attempt=2)
        assert not gateway.say(VICTIM, gateway.announcement(plan=plan))  # type: ignore[arg-type]
        assert gateway.codes(VICTIM) == ["E-CONTRADICTION"]

    def test_the_other_mode_with_a_deposited_index(self) -> None:
        gateway = self.gateway()
        device = gateway.device(VICTIM)
        call = dataclasses.replace(gateway.harness.aggregator.call, mode=RoundMode.SECAGG)
        with pytest.raises(RemoteProtocolError) as caught:
            DeviceRound.answer(
                call,
                identity=device.identity,
                policy=device.policy,
                entropy=device.entropy,
                epoch=device.epoch,
                gateway_key=gateway.harness.gateway_key.public_key,
            )
        assert caught.value.code == "E-KEY-INDEX-USED"

    def test_a_device_whose_owner_allows_no_experiments(self) -> None:
        gateway = self.gateway()
        gateway.device(VICTIM).policy = POLICY
        assert self.refusal(gateway, gateway.announcement()) == "E-PLAN-POLICY"

    def test_a_smaller_epsilon_as_if_the_cohort_had_been_sampled(self) -> None:
        gateway = self.gateway()
        privacy = privacy_plan(8, gateway.harness.floor, 7, 1.0)
        gateway.device(VICTIM).policy = dataclasses.replace(
            EXPERIMENTAL, privacy=PrivacyPolicy(max_epsilon=1e9, max_clip_norm=10)
        )
        amplified = dataclasses.replace(privacy, epsilon_declared=privacy.epsilon_declared / 2)
        plan = dataclasses.replace(gateway.plan, privacy=amplified)
        assert self.refusal(gateway, gateway.announcement(plan=plan)) == "E-PLAN-EPSILON"

    @pytest.mark.parametrize("change", ["missing", "more"])
    def test_holders_that_the_beacon_did_not_draw(self, change: str) -> None:
        gateway = Gateway(OneUploadHarness(24, **SPARSE))
        gateway.harness.packets.clear()
        message = gateway.announcement()
        known = {holder.entry.device for holder in message.holders}
        stranger = next(name for name in gateway.members if name not in {*known, VICTIM})
        holders = list(message.holders[1:])
        if change == "more":
            holders = [*message.holders, gateway.harness.keys.member_proof(stranger)]
        changed = dataclasses.replace(
            message, holders=tuple(sorted(holders, key=lambda one: one.roster_position))
        )
        assert self.refusal(gateway, changed) == "E-PLAN-HOLDERS"

    def test_a_holder_with_a_key_of_the_gateways(self) -> None:
        gateway = self.gateway()
        message = gateway.announcement()
        first = message.holders[0]
        bundle = dataclasses.replace(
            first.bundle, share_key=gateway.harness.keys.bundle_of("d07").share_key
        )
        changed = (dataclasses.replace(first, bundle=bundle), *message.holders[1:])
        message = dataclasses.replace(message, holders=changed)
        assert self.refusal(gateway, message) == "E-BUNDLE-SIGNATURE"

    def test_missing_neighbours(self) -> None:
        gateway = self.gateway()
        message = gateway.announcement()
        changed = dataclasses.replace(message, peers=message.peers[1:])
        assert self.refusal(gateway, changed) == "E-PLAN-NEIGHBOURS"


class TestDepositCalls:
    def refusal(
        self, harness: OneUploadHarness, index: int, terms: DepositTerms | None = None
    ) -> str:
        book = DepositBook(harness.keys, index, terms or harness.terms)
        device = harness.devices[VICTIM]
        harness.deposit(device, book.call_to(VICTIM))
        (error,) = device.refused
        assert (VICTIM, index) not in harness.deposits_sent
        return error.code

    def harness(self, **options: object) -> OneUploadHarness:
        return OneUploadHarness(8, without_deposit={VICTIM}, floor=6, **options)

    def test_an_index_that_serves_a_call_of_the_other_mode(self) -> None:
        harness = self.harness()
        harness.devices[VICTIM].epoch.reserve_index(3, bytes(32))
        assert self.refusal(harness, 3) == "E-KEY-INDEX-USED"

    def test_an_index_that_was_deposited_and_its_record_is_gone(self) -> None:
        harness = OneUploadHarness(8)
        harness.deposits_sent.clear()
        assert self.refusal(harness, 0) == "E-KEY-INDEX-USED"

    def test_an_owner_who_allows_no_experiments(self) -> None:
        harness = self.harness()
        harness.devices[VICTIM].policy = POLICY
        assert self.refusal(harness, 3) == "E-PLAN-POLICY"

    def test_terms_below_the_owners_floors(self) -> None:
        harness = self.harness()
        harness.devices[VICTIM].policy = dataclasses.replace(
            EXPERIMENTAL, least_corrupt_permille=50
        )
        assert self.refusal(harness, 3) == "E-PLAN-POLICY"

    def test_a_class_that_the_gateways_own_roster_cannot_claim(self) -> None:
        harness = self.harness()
        harness.gateway_key = signing_key("enrolment")
        terms = dataclasses.replace(harness.terms, adversary=MALICIOUS)
        assert self.refusal(harness, 3, terms) == "E-PLAN-ENROLMENT"

    def test_another_key_epoch_or_an_index_out_of_range(self) -> None:
        for change, code in (
            ({"key_epoch": 9}, "E-CALL-EPOCH"),
            ({"key_index": 900}, "E-KEY-INDEX-RANGE"),
        ):
            harness = self.harness()
            call = DepositBook(harness.keys, 3, harness.terms).call_to(VICTIM)
            harness.deposit(harness.devices[VICTIM], dataclasses.replace(call, **change))
            assert [error.code for error in harness.devices[VICTIM].refused] == [code]

    def test_holders_that_the_beacon_did_not_draw(self) -> None:
        harness = self.harness()
        call = DepositBook(harness.keys, 3, harness.terms).call_to(VICTIM)
        harness.deposit(
            harness.devices[VICTIM], dataclasses.replace(call, holders=call.holders[1:])
        )
        assert [error.code for error in harness.devices[VICTIM].refused] == ["E-PLAN-HOLDERS"]


def test_no_secret_shows_in_a_repr() -> None:
    harness = OneUploadHarness(8)
    harness.run_until(Phase.CERTIFICATE)
    device = harness.devices[VICTIM]
    assert device.flash is not None
    assert isinstance(device.machine, OneUploadRound)
    state = device.machine._state
    seed = state.self_seed.export_bytes()
    assert state.own_share is not None
    texts = [repr(state), repr(state.upload), repr(device.machine.begin())]
    for secret in (seed, state.own_share):
        assert not any(repr(secret)[2:-1] in text or secret.hex() in text for text in texts)
