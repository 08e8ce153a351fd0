"""Defences of a device before it shares a key: roster, floors, session, graph (1 to 4).

The numbers are those of the twelve defences against a malicious gateway in secagg.md.
"""

import dataclasses
from collections.abc import Callable

import pytest

from edgefl.errors import WireError
from edgefl.protocol.epoch_messages import RosterUpdate
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.reasons import AdversaryClass, Phase, Prg, RoundMode
from edgefl.protocol.roster import sign_roster
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from edgefl.protocol.wire import encode_bitmap
from tests.device_fixtures import LIAR
from tests.device_harness import Table
from tests.epoch_harness import DAY, ENROLMENT, FLEET, entry_of, signing_key
from tests.hostile_gateway import (
    SEMI,
    VICTIM,
    announce,
    assert_nothing_revealed,
    assert_plan_refused,
    signed,
    small,
    small_in,
    sparse,
    sparse_in,
    with_proof,
)
from tests.round_boards import POLICY, privacy_plan


@pytest.mark.parametrize("make", [small, lambda: small(SEMI), lambda: small(LIAR), sparse])
def test_what_is_honest_is_accepted_to_the_end(make: Callable[[], Table]) -> None:
    table = make().run_to(Phase.UNMASKING)
    lists = table.proposal()
    for name in table.committee:
        table.devices[name].say(lists)
    for name in table.members:
        table.devices[name].say(table.request())
        neighbours = [table.position(one) for one in table.neighbours(name)]
        (revealed,) = table.devices[name].sent_of(RevealedShares)
        assert [position for position, _ in revealed.shares] == neighbours
    assert [device.codes for device in table.devices.values()] == [[]] * len(table.devices)


class TestDefence1IdentitiesOnlyFromTheRoster:
    """Identities from the signed, append-only roster; own key once; new identities capped."""

    def test_an_invented_identity(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        message = with_proof(
            table, 1, lambda proof: dataclasses.replace(proof, entry=entry_of("zombie"))
        )
        assert_plan_refused(announce(table, message), "E-ROSTER-PATH")

    def test_another_key_for_a_known_device(self) -> None:
        table = small_in(Phase.SHARE_KEYS)

        def swap(proof: PeerProof) -> PeerProof:
            key = signing_key("gateway's own").public_key
            entry = dataclasses.replace(proof.entry, identity_key=key)
            return dataclasses.replace(proof, entry=entry)

        assert_plan_refused(announce(table, with_proof(table, 1, swap)), "E-ROSTER-PATH")

    def test_a_roster_that_forks_from_the_pinned_one(self) -> None:
        table = small()
        entries = [entry_of(name) for name in [*table.devices, "zombie"]]
        forked = sign_roster(None, FLEET, entries, ENROLMENT)
        position = forked.position_of(VICTIM)
        assert position is not None
        update = RosterUpdate(
            enrolment_key=forked.enrolment_key,
            headers=forked.headers,
            enrolled_day=DAY,
            position=position,
            path=forked.path(position),
        )
        device = table.devices[VICTIM]
        (refused,) = device.epoch.handle(update, 0.0)
        assert "E-ROSTER-FORK" in repr(refused)

    def test_the_victims_own_share_key_at_a_neighbour(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        own = table.keys.bundle_of(VICTIM).share_key
        message = with_proof(
            table,
            0,
            lambda proof: dataclasses.replace(proof, bundle=signed(proof.bundle, share_key=own)),
        )
        assert_plan_refused(announce(table, message), "E-PEER-SELF")

    def test_one_share_key_at_two_neighbours(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        twice = table.keys.bundle_of("d02").share_key
        message = with_proof(
            table,
            0,
            lambda proof: dataclasses.replace(proof, bundle=signed(proof.bundle, share_key=twice)),
        )
        assert_plan_refused(announce(table, message), "E-PLAN-KEYS")

    def test_one_mask_key_at_two_neighbours(self) -> None:
        table = small_in(Phase.SHARE_KEYS)
        copied = table.announcement(VICTIM).peers[1][1]

        def copy(proof: PeerProof) -> PeerProof:
            bundle = signed(proof.bundle, mask_root=copied.bundle.mask_root)
            return dataclasses.replace(proof, bundle=bundle, mask_key=copied.mask_key)

        assert_plan_refused(announce(table, with_proof(table, 0, copy)), "E-PLAN-KEYS")

    def test_a_fleet_of_new_identities(self) -> None:
        policy = dataclasses.replace(POLICY, young_days=30, most_young_permille=300)
        table = small(policy=policy, today=DAY + 5)
        assert_plan_refused(announce(table), "E-PLAN-YOUNG")

    def test_identities_grow_old(self) -> None:
        policy = dataclasses.replace(POLICY, young_days=30, most_young_permille=300)
        assert announce(small(policy=policy, today=DAY + 30)).codes == []

    def test_a_device_without_a_date_takes_everybody_for_new(self) -> None:
        policy = dataclasses.replace(POLICY, young_days=30, most_young_permille=300)
        assert_plan_refused(announce(small(policy=policy, today=0)), "E-PLAN-YOUNG")


class TestDefence2FloorsFromTheDevicesOwnPolicy:
    """Class, floor, degree, fractions, clip norm and PRGs come from the owner, not the gateway."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"adversary_classes": frozenset({LIAR})},
            {"adversary_classes": frozenset()},
            {"least_survivor_floor": 6},
            {"least_corrupt_permille": 1},
            {"least_drop_permille": 1},
            {"privacy": dataclasses.replace(POLICY.privacy, max_clip_norm=0.5)},
            {"privacy": dataclasses.replace(POLICY.privacy, min_colluders=1)},
            {"privacy": dataclasses.replace(POLICY.privacy, max_epsilon=3.0)},
        ],
    )
    def test_a_plan_below_a_floor(self, changes: dict[str, object]) -> None:
        policy = dataclasses.replace(POLICY, **changes)  # type: ignore[arg-type]
        assert_plan_refused(announce(small(policy=policy)), "E-PLAN-POLICY")

    def test_a_sparse_graph_below_the_least_degree(self) -> None:
        policy = dataclasses.replace(POLICY, least_degree=11)
        assert_plan_refused(announce(sparse(policy=policy)), "E-PLAN-POLICY")

    def test_a_complete_graph_has_enough_neighbours(self) -> None:
        assert announce(small(policy=dataclasses.replace(POLICY, least_degree=11))).codes == []

    def test_a_prg_that_the_owner_does_not_accept(self) -> None:
        policy = dataclasses.replace(POLICY, prgs=frozenset({Prg.CHACHA20}))
        # The boards of these tests declare ChaCha20 alone, so that no pair would use another.
        assert announce(small(policy=policy)).codes == []

    @pytest.mark.parametrize("adversary", [SEMI, LIAR])
    def test_a_gateway_that_signs_the_roster_itself(self, adversary: AdversaryClass) -> None:
        assert_plan_refused(announce(small(adversary, gateway_key=ENROLMENT)), "E-PLAN-ENROLMENT")

    def test_a_gateway_that_signs_the_roster_itself_may_be_trusted(self) -> None:
        assert announce(small(gateway_key=ENROLMENT)).codes == []

    def test_a_call_in_an_experimental_mode_is_not_answered(self) -> None:
        table = small()
        device = table.devices[VICTIM]
        device.answer(dataclasses.replace(table.call, mode=RoundMode.ONE_UPLOAD))
        assert device.codes == ["E-CALL-MODE"]
        assert device.sent == []


class TestDefence3EverythingIsBoundToTheWholePlan:
    """The session id is the hash of the whole plan, and nothing of one session serves another."""

    def test_each_field_changes_the_session(self) -> None:
        table = small()
        changes: list[dict[str, object]] = [
            {"task": "other"},
            {"round_number": 2},
            {"attempt": 2},
            {"call_id": bytes(32)},
            {"adversary": SEMI},
            {"prgs": Prg.CHACHA20.bit},
            {"key_epoch": 9},
            {"record_sha256": bytes(32)},
            {"key_index": 1},
            {"cohort": encode_bitmap([False, *[True] * 5])},
            {"thresholds": dataclasses.replace(table.plan.thresholds, window=1)},
            {"corrupt_permille": 3},
            {"drop_permille": 3},
            {"bundle_sha256": bytes([1] * 32)},
            {"parameters_sha256": bytes([1] * 32)},
            {"training": dataclasses.replace(table.plan.training, batch_size=5)},
            {"privacy": dataclasses.replace(table.plan.privacy, rounds=4)},
            {"ledger_head": bytes([1] * 32)},
        ]
        ids = {table.changed(**change).session_id for change in changes}
        assert len(ids) == len(changes)
        assert table.plan.session_id not in ids

    @pytest.mark.parametrize(
        "changes",
        [
            {"task": "other"},
            {"round_number": 2},
            {"attempt": 2},
            {"call_id": bytes(32)},
            {"key_index": 1},
            {"fleet": "other-fleet"},
        ],
    )
    def test_a_plan_for_another_call(self, changes: dict[str, object]) -> None:
        table = small()
        plan = table.changed(**changes)
        table.run_to(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, table.announcement(VICTIM, plan)), "E-PLAN-CALL")

    @pytest.mark.parametrize("loses_power", [False, True])
    def test_a_second_plan_gets_no_second_shares(self, loses_power: bool) -> None:
        table = small()
        device = announce(table)
        if loses_power:
            device.restart()
        other = table.changed(ledger_head=bytes([1] * 32))
        device.say(table.announcement(VICTIM, other))
        assert device.codes == ["E-CONTRADICTION"]
        assert len(set(device.sent_of(SharedKeys))) == 1

    def test_shares_of_another_session_do_not_open(self) -> None:
        """What was sealed in one attempt is routed in the next one."""
        first, second = small_in(Phase.MASKED_INPUT, LIAR), small(LIAR)
        second.call = dataclasses.replace(second.call, attempt=2, key_index=1)
        second.plan = second.make_plan()
        second.run_to(Phase.MASKED_INPUT)
        replayed = first.routed(VICTIM)
        device = second.devices[VICTIM]
        device.say(replayed)
        assert device.codes == ["E-SHARES-SEALED"]
        assert device.sent_of(MaskedInput) == []

    def test_a_certificate_of_another_session(self) -> None:
        table = small_in(Phase.UNMASKING, LIAR)
        other = small(LIAR, noise=0.4)
        certificate = other.certificate(other.proposal(), table.committee)
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    @pytest.mark.parametrize("cut", [0, 1, 40, -1])
    def test_a_damaged_plan(self, cut: int) -> None:
        table = small_in(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        device = announce(table, dataclasses.replace(honest, plan=honest.plan[:cut]))
        assert isinstance(device.refused[0], WireError)
        assert device.sent_of(SharedKeys) == []


def _weaker(**changes: int) -> Callable[[Table], PlanAnnouncement]:
    def make(table: Table) -> PlanAnnouncement:
        thresholds = dataclasses.replace(table.plan.thresholds, **changes)
        return table.announcement(VICTIM, table.changed(thresholds=thresholds))

    return make


class TestDefence4GraphAndCommitteeAreRecomputed:
    """The beacon decides who is whose neighbour and who signs; the device draws again."""

    @pytest.mark.parametrize(
        "weaken",
        [
            _weaker(degree=8, neighbourhood=7),
            _weaker(degree=12),
            _weaker(neighbourhood=6),
            _weaker(committee=5),
            _weaker(committee=9),
            _weaker(certificate=4),
            _weaker(window=2),
            _weaker(window=0),
            _weaker(committee=0, certificate=0),
        ],
    )
    def test_weaker_sizes(self, weaken: Callable[[Table], PlanAnnouncement]) -> None:
        table = sparse_in(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, weaken(table)), "E-PLAN-THRESHOLDS")

    def test_one_neighbour_left_out(self) -> None:
        table = sparse_in(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        message = dataclasses.replace(honest, peers=honest.peers[1:])
        assert_plan_refused(announce(table, message), "E-PLAN-NEIGHBOURS")

    def test_a_neighbour_of_the_gateways_choice(self) -> None:
        table = sparse_in(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        stranger = next(
            name for name in table.members if name not in [VICTIM, *table.neighbours(VICTIM)]
        )
        (check_in,) = table.devices[stranger].sent_of(CheckIn)
        proof = table.keys.require_mask_key(stranger, check_in.mask_key, table.call.key_index)
        position = honest.peers[0][0]
        message = dataclasses.replace(honest, peers=((position, proof), *honest.peers[1:]))
        assert_plan_refused(announce(table, message), "E-PLAN-NEIGHBOUR")

    @pytest.mark.parametrize(
        "changes",
        [{"record_sha256": bytes(32)}, {"epoch_size": 7, "cohort": encode_bitmap([True] * 7)}],
    )
    def test_another_beacon(self, changes: dict[str, object]) -> None:
        table = small()
        privacy = privacy_plan(7, 5, 7, 0.0, 1)
        plan = table.changed(privacy=privacy, **changes)
        table.run_to(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, table.announcement(VICTIM, plan)), "E-PLAN-EPOCH")

    def test_a_cohort_without_the_victim(self) -> None:
        table = small(absent=[VICTIM])
        everybody = small_in(Phase.SHARE_KEYS)
        message = dataclasses.replace(everybody.announcement(VICTIM), plan=table.plan.to_bytes())
        assert_plan_refused(announce(everybody, message), "E-PLAN-SELF")

    def test_in_the_malicious_class_the_ring_holds_the_absent_too(self) -> None:
        """Choosing who checked in must not choose the neighbours."""
        absent = sparse(absent=["d20", "d21"]).run_to(Phase.SHARE_KEYS)
        present = sparse()
        expected = [name for name in present.neighbours(VICTIM) if name not in {"d20", "d21"}]
        assert absent.neighbours(VICTIM) == expected
        assert announce(absent).codes == []

    def test_a_signer_that_was_not_drawn(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        outsider = next(name for name in table.members if name not in table.committee)
        signers = [*table.committee[:4], outsider]
        device = table.devices[VICTIM]
        device.say(table.request(certificate=table.certificate(table.proposal(), signers)))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNER")

    def test_a_proposal_to_a_device_that_was_not_drawn(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        outsider = next(name for name in table.members if name not in table.committee)
        table.devices[outsider].say(table.proposal())
        assert table.devices[outsider].codes == ["E-CERTIFICATE-SEAT"]
        assert table.devices[outsider].sent_of(SurvivorVote) == []

    def test_a_proposal_where_there_is_no_committee(self) -> None:
        table = small_in(Phase.UNMASKING)
        table.devices[VICTIM].say(table.proposal())
        assert table.devices[VICTIM].codes == ["E-CERTIFICATE-SEAT"]
        assert table.devices[VICTIM].sent_of(SurvivorVote) == []
