"""The twelve defences against a malicious gateway, each tried by one; secagg.md numbers them."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest

from edgefl.errors import EdgeflError, WireError
from edgefl.privacy.plan_wire import WIRE_FIELDS
from edgefl.protocol.certificate import SurvivorCertificate, certificate_statement
from edgefl.protocol.device_session import DeviceSession
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.epoch_messages import RosterUpdate
from edgefl.protocol.key_bundle import KeyBundle
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import ALL_PRGS, AdversaryClass, LeaveReason, Phase, Prg, RoundMode
from edgefl.protocol.roster import sign_roster
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.wire import as_body, decode, encode, encode_bitmap
from edgefl.secagg.session import PeerKeys
from tests.device_harness import CURIOUS, GATEWAY, LIAR, POLICY, TODAY, Device, Table, privacy_plan
from tests.epoch_harness import DAY, ENROLMENT, FLEET, entry_of, signing_key

VICTIM = "d00"
SMALL_ORDER_KEY = bytes(32)
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


def _plan_and_peers(device: Device) -> tuple[SessionPlan, Mapping[int, PeerKeys]]:
    assert device.flash.round is not None
    state = DeviceState.from_bytes(device.flash.round)
    return state.require_plan(), state.peers


def _with_ring_bits(table: Table, ring_bits: int) -> bytes:
    """Encode a plan that no constructor would make."""
    body = dict(as_body(decode(table.plan.to_bytes())))
    privacy = dict(as_body(body[19]))
    (key,) = [key for key, (name, _) in WIRE_FIELDS.items() if name == "ring_bits"]
    privacy[key] = ring_bits
    return encode(body | {19: privacy})


def assert_plan_refused(device: Device, code: str) -> None:
    assert device.codes == [code]
    assert device.leaves == [LeaveReason.PLAN_REFUSED.name]
    assert device.sent_of(SharedKeys) == []
    assert device.machine is None


def assert_nothing_revealed(device: Device, code: str) -> None:
    assert device.codes == [code]
    assert device.leaves == [LeaveReason.REQUEST_REFUSED.name]
    assert device.sent_of(RevealedShares) == []


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
        table = small().run_to(Phase.SHARE_KEYS)
        message = with_proof(
            table, 1, lambda proof: dataclasses.replace(proof, entry=entry_of("zombie"))
        )
        assert_plan_refused(announce(table, message), "E-ROSTER-PATH")

    def test_another_key_for_a_known_device(self) -> None:
        table = small().run_to(Phase.SHARE_KEYS)

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
        table = small().run_to(Phase.SHARE_KEYS)
        own = table.keys.bundle_of(VICTIM).share_key
        message = with_proof(
            table,
            0,
            lambda proof: dataclasses.replace(proof, bundle=signed(proof.bundle, share_key=own)),
        )
        assert_plan_refused(announce(table, message), "E-PEER-SELF")

    def test_one_share_key_at_two_neighbours(self) -> None:
        table = small().run_to(Phase.SHARE_KEYS)
        twice = table.keys.bundle_of("d02").share_key
        message = with_proof(
            table,
            0,
            lambda proof: dataclasses.replace(proof, bundle=signed(proof.bundle, share_key=twice)),
        )
        assert_plan_refused(announce(table, message), "E-PLAN-KEYS")

    def test_one_mask_key_at_two_neighbours(self) -> None:
        table = small().run_to(Phase.SHARE_KEYS)
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
        first, second = small(LIAR).run_to(Phase.MASKED_INPUT), small(LIAR)
        second.call = dataclasses.replace(second.call, attempt=2, key_index=1)
        second.plan = second.make_plan()
        second.run_to(Phase.MASKED_INPUT)
        replayed = first.routed(VICTIM)
        device = second.devices[VICTIM]
        device.say(replayed)
        assert device.codes == ["E-SHARES-SEALED"]
        assert device.sent_of(MaskedInput) == []

    def test_a_certificate_of_another_session(self) -> None:
        table = small(LIAR).run_to(Phase.UNMASKING)
        other = small(LIAR, noise=0.4)
        certificate = other.certificate(other.proposal(), table.committee)
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    @pytest.mark.parametrize("cut", [0, 1, 40, -1])
    def test_a_damaged_plan(self, cut: int) -> None:
        table = small().run_to(Phase.SHARE_KEYS)
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
        table = sparse().run_to(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, weaken(table)), "E-PLAN-THRESHOLDS")

    def test_one_neighbour_left_out(self) -> None:
        table = sparse().run_to(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        message = dataclasses.replace(honest, peers=honest.peers[1:])
        assert_plan_refused(announce(table, message), "E-PLAN-NEIGHBOURS")

    def test_a_neighbour_of_the_gateways_choice(self) -> None:
        table = sparse().run_to(Phase.SHARE_KEYS)
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
        everybody = small().run_to(Phase.SHARE_KEYS)
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
        table = sparse().run_to(Phase.UNMASKING)
        outsider = next(name for name in table.members if name not in table.committee)
        signers = [*table.committee[:4], outsider]
        device = table.devices[VICTIM]
        device.say(table.request(certificate=table.certificate(table.proposal(), signers)))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNER")

    def test_a_proposal_to_a_device_that_was_not_drawn(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        outsider = next(name for name in table.members if name not in table.committee)
        table.devices[outsider].say(table.proposal())
        assert table.devices[outsider].codes == ["E-CERTIFICATE-SEAT"]
        assert table.devices[outsider].sent_of(SurvivorVote) == []

    def test_a_proposal_where_there_is_no_committee(self) -> None:
        table = small().run_to(Phase.UNMASKING)
        table.devices[VICTIM].say(table.proposal())
        assert table.devices[VICTIM].codes == ["E-CERTIFICATE-SEAT"]
        assert table.devices[VICTIM].sent_of(SurvivorVote) == []


class TestDefence5NoShareWithoutACertificate:
    """In the malicious class at least t_c members of the committee signed exactly these lists."""

    def test_none(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        lists = table.proposal()
        device = table.devices[VICTIM]
        device.say(
            UnmaskRequest(survivors=lists.survivors, dropped=lists.dropped, certificate=None)
        )
        assert_nothing_revealed(device, "E-CERTIFICATE-MISSING")

    def test_one_signature_too_few(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(), table.committee[:4])
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-FEW")

    @pytest.mark.parametrize("count", [5, 6, 7])
    def test_enough(self, count: int) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(), table.committee[:count])
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert device.codes == []
        assert len(device.sent_of(RevealedShares)) == 1

    def test_over_other_lists(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(dropped=["d05"]))
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    def test_one_forged_signature_among_enough(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        lists = table.proposal()
        honest = [table.signature(name, lists) for name in table.committee[:4]]
        forged = table.signature(table.committee[4], lists, key=GATEWAY)
        device = table.devices[VICTIM]
        device.say(table.request(certificate=_certificate([*honest, forged])))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    def test_an_entry_that_is_not_in_the_roster(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        lists = table.proposal()
        honest = [table.signature(name, lists) for name in table.committee[:4]]
        last = table.signature(table.committee[4], lists, key=GATEWAY)
        entry = dataclasses.replace(last.entry, identity_key=GATEWAY.public_key)
        device = table.devices[VICTIM]
        made_up = dataclasses.replace(last, entry=entry)
        device.say(table.request(certificate=_certificate([*honest, made_up])))
        assert_nothing_revealed(device, "E-ROSTER-PATH")

    def test_one_signer_twice(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        once = table.signature(table.committee[0], table.proposal())
        with pytest.raises(WireError, match="E-WIRE-CERTIFICATE"):
            _certificate([once] * 5)

    def test_a_certificate_where_none_belongs(self) -> None:
        table = small().run_to(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(), ["d01"])
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-NONE")


def _certificate(signatures: Sequence[object]) -> SurvivorCertificate:
    ordered = sorted(signatures, key=lambda one: one.roster_position)  # type: ignore[attr-defined]
    return SurvivorCertificate(signatures=tuple(ordered))  # type: ignore[arg-type]


def _lists(alive: str, gone: str, size: int = 6) -> UnmaskRequest:
    return UnmaskRequest(
        survivors=encode_bitmap([str(position) in alive for position in range(size)]),
        dropped=encode_bitmap([str(position) in gone for position in range(size)]),
        certificate=None,
    )


class TestDefence6ListsAreSoundAndAnsweredOnce:
    """Disjoint lists of all that shared keys, self alive; one answer, whatever happens."""

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (_lists("012345", "5"), "E-UNMASK-BOTH"),
            (_lists("012345", "012345"), "E-UNMASK-BOTH"),
            (_lists("01234", ""), "E-UNMASK-LISTS"),
            (_lists("", ""), "E-UNMASK-LISTS"),
            (_lists("12345", "0"), "E-UNMASK-SELF"),
            (_lists("012345", "", size=12), "E-WIRE-BITMAP"),
            (
                UnmaskRequest(survivors=b"\xff", dropped=b"\x00", certificate=None),
                "E-WIRE-BITMAP",
            ),
        ],
    )
    def test_unsound_lists(self, request_: UnmaskRequest, code: str) -> None:
        device = small().run_to(Phase.UNMASKING).devices[VICTIM]
        device.say(request_)
        assert_nothing_revealed(device, code)

    @pytest.mark.parametrize(
        ("alive", "gone", "code"),
        [
            ("self others", "other", "E-UNMASK-BOTH"),
            ("self others", "", "E-UNMASK-LISTS"),
            ("others", "self", "E-UNMASK-SELF"),
            ("self", "others", "E-UNMASK-FEW"),
        ],
    )
    def test_unsound_lists_are_not_signed_either(self, alive: str, gone: str, code: str) -> None:
        table = small(LIAR).run_to(Phase.UNMASKING)
        signer = table.committee[0]
        others = [name for name in table.members if name != signer]
        groups = {"self": [signer], "others": others, "other": others[:1]}
        if code == "E-UNMASK-LISTS":
            groups["others"] = others[1:]
        device = table.devices[signer]
        device.say(
            SurvivorProposal(
                survivors=table.bitmap(itertools.chain(*(groups[key] for key in alive.split()))),
                dropped=table.bitmap(itertools.chain(*(groups[key] for key in gone.split()))),
            )
        )
        assert device.codes == [code]
        assert device.sent_of(SurvivorVote) == []

    def test_a_device_that_shared_no_keys_cannot_be_named(self) -> None:
        table = small().run_to(Phase.UNMASKING, missing=["d05"])
        device = table.devices[VICTIM]
        device.say(table.request(dropped=["d05"]))
        assert_nothing_revealed(device, "E-UNMASK-LISTS")

    @pytest.mark.parametrize("loses_power", [False, True])
    def test_contradictory_lists_get_one_answer(self, loses_power: bool) -> None:
        table = small().run_to(Phase.UNMASKING)
        device = table.devices[VICTIM]
        device.say(table.request())
        if loses_power:
            device.restart()
        device.say(table.request(dropped=["d05"]))
        device.say(table.request())
        assert device.codes == ["E-CONTRADICTION"]
        assert len(set(device.sent_of(RevealedShares))) == 1

    @pytest.mark.parametrize("adversary", [CURIOUS, LIAR])
    def test_no_share_and_no_vote_before_the_masked_input(self, adversary: AdversaryClass) -> None:
        table = small(adversary).run_to(Phase.MASKED_INPUT)
        name = table.committee[0] if table.committee else VICTIM
        device = table.devices[name]
        device.is_busy = True
        device.say(table.routed(name))
        device.say(table.proposal() if table.committee else table.request())
        assert device.codes == ["E-UNMASK-EARLY"]
        assert device.sent_of(RevealedShares) == device.sent_of(SurvivorVote) == []

    @pytest.mark.parametrize("phase", [Phase.SHARE_KEYS, Phase.MASKED_INPUT])
    def test_a_request_in_an_early_phase_changes_nothing(self, phase: Phase) -> None:
        table = small().run_to(phase)
        device = table.devices[VICTIM]
        before = device.flash.round
        device.say(_lists("012345", ""))
        assert device.codes == ["E-UNEXPECTED"]
        assert device.flash.round == before
        assert device.sent_of(RevealedShares) == []


class TestDefence7NeverBothKindsOfShare:
    """Of each device either shares of its self-mask seed or of its mask key, in all a session."""

    def test_two_requests_to_everybody(self) -> None:
        table = small().run_to(Phase.UNMASKING)
        for name, request in itertools.product(
            table.members, (table.request(), table.request(dropped=["d05"]))
        ):
            table.devices[name].say(request)
            table.devices[name].say(request)
        assert _kinds_revealed(table) == {name: {"seed"} for name in table.members}

    @pytest.mark.parametrize("split", range(7))
    def test_two_views_cannot_open_both_secrets(self, split: int) -> None:
        """Some devices are told that the victim survived, the others that it dropped out."""
        table = small(SEMI).run_to(Phase.UNMASKING)
        for index, name in enumerate(table.members):
            says_alive = index < split
            table.devices[name].say(table.request(dropped=[] if says_alive else [VICTIM]))
        position = table.position(VICTIM)
        counts = {"seed": 0, "key": 0}
        for name in table.members:
            if name != VICTIM:
                for kind in _kinds_of(table, name).get(position, ()):
                    counts[kind] += 1
        assert min(counts.values()) < table.plan.thresholds.neighbourhood
        assert sum(counts.values()) == 5

    def test_a_dropped_device_gives_its_key_alone(self) -> None:
        table = small().run_to(Phase.UNMASKING)
        for name in table.members[:5]:
            table.devices[name].say(table.request(dropped=["d05"]))
        assert _kinds_revealed(table)["d05"] == {"key"}
        assert _kinds_revealed(table)["d01"] == {"seed"}


def _kinds_of(table: Table, holder: str) -> dict[int, set[str]]:
    """Tell of each share that a device ever sent of which secret of its owner it is."""
    device = table.devices[holder]
    assert device.flash.round is not None or device.sent_of(RevealedShares) == []
    if device.flash.round is None:
        return {}
    state = DeviceState.from_bytes(device.flash.round)
    session = DeviceSession(state.require_plan(), state.peers, device.epoch.keys)
    shares = session.open_shares(state.require_routed())
    kinds: dict[int, set[str]] = {}
    for message in device.sent_of(RevealedShares):
        for position, share in message.shares:
            kinds.setdefault(position, set()).add(
                {shares[position][0]: "key", shares[position][1]: "seed"}[share]
            )
    return kinds


def _kinds_revealed(table: Table) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in table.members}
    for holder in table.members:
        for position, kinds in _kinds_of(table, holder).items():
            found[table.members[position]] |= kinds
    return found


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
        table = small().run_to(Phase.SHARE_KEYS)
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

    def test_an_older_snapshot_without_its_key_epoch(self) -> None:
        """The round's snapshot of one key epoch says nothing under another's."""
        table = small().run_to(Phase.MASKED_INPUT)
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
            table = small(LIAR).run_to(Phase.UNMASKING)
            device = table.devices[VICTIM]
            flash = device.flash.round
            assert flash is not None
            state = DeviceState.from_bytes(flash)
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


class TestDefence10FloorsAfterDrops:
    """The survivor floor is checked again after each drop, and so are the ring's windows."""

    def test_too_few_shared_keys(self) -> None:
        table = small().run_to(Phase.MASKED_INPUT)
        device = table.devices[VICTIM]
        device.say(table.routed(VICTIM, missing=["d04", "d05"]))
        assert device.codes == ["E-SHARES-FEW"]
        assert device.sent_of(MaskedInput) == []

    @pytest.mark.parametrize("n_dropped", [1, 2, 3])
    def test_too_few_survivors(self, n_dropped: int) -> None:
        table = small().run_to(Phase.UNMASKING)
        device = table.devices[VICTIM]
        device.say(table.request(dropped=table.members[-n_dropped:]))
        if n_dropped == 1:
            assert device.codes == []
        else:
            assert_nothing_revealed(device, "E-UNMASK-FEW")

    def test_an_arc_of_the_ring_is_not_given_up(self) -> None:
        """Enough survivors, and yet a window of the ring without any: a cut."""
        table = sparse().run_to(Phase.UNMASKING)
        signer = table.committee[0]
        # Of three in an arc all are dropped: its window of five has two left, one too few.
        for arc in itertools.combinations([name for name in table.members if name != signer], 3):
            positions = [table.position(name) for name in table.members if name not in arc]
            if not table.graph.windows_hold(positions):
                break
        else:
            pytest.fail("no three neighbours on the ring")
        device = table.devices[signer]
        device.say(table.proposal(dropped=arc))
        assert device.codes == ["E-UNMASK-WINDOW"]
        assert device.sent_of(SurvivorVote) == []

    def test_drops_that_leave_the_windows_are_signed(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        signer = table.committee[0]
        other = next(name for name in table.members if name != signer)
        table.devices[signer].say(table.proposal(dropped=[other]))
        assert len(table.devices[signer].sent_of(SurvivorVote)) == 1

    def test_windows_are_checked_before_shares_leave_too(self) -> None:
        """Though a corrupt committee signed."""
        table = sparse().run_to(Phase.UNMASKING)
        device = table.devices[VICTIM]
        for arc in itertools.combinations(table.members[1:], 3):
            positions = [table.position(name) for name in table.members if name not in arc]
            if not table.graph.windows_hold(positions):
                break
        device.say(table.request(dropped=arc))
        assert_nothing_revealed(device, "E-UNMASK-WINDOW")

    def test_a_cohort_of_one_old_device_and_invented_ones(self) -> None:
        policy = dataclasses.replace(POLICY, young_days=TODAY - DAY + 1, most_young_permille=500)
        assert_plan_refused(announce(small(policy=policy)), "E-PLAN-YOUNG")

    def test_too_few_neighbours_shared(self) -> None:
        """The cohort is above its floor, the victim's neighbourhood below its threshold."""
        table = sparse().run_to(Phase.MASKED_INPUT)
        missing = table.neighbours(VICTIM)[:4]
        device = table.devices[VICTIM]
        device.say(table.routed(VICTIM, missing=missing))
        assert device.codes == ["E-SHARES-NEIGHBOURS"]
        assert device.sent_of(MaskedInput) == []


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
        table = small().run_to(Phase.SHARE_KEYS)
        assert_plan_refused(announce(table, with_proof(table, 2, change)), code)

    def test_a_prg_that_is_not_known(self) -> None:
        with pytest.raises(WireError, match="E-PLAN-PRGS"):
            small().changed(prgs=ALL_PRGS | 4)

    def test_the_mandatory_prg_left_out(self) -> None:
        with pytest.raises(WireError, match="E-PLAN-PRGS"):
            small().changed(prgs=Prg.AES_128_CTR.bit)

    def test_the_threshold_of_a_complete_graph(self) -> None:
        table = small().run_to(Phase.SHARE_KEYS)
        weak = dataclasses.replace(table.plan.thresholds, neighbourhood=3)
        message = table.announcement(VICTIM, table.changed(thresholds=weak))
        assert_plan_refused(announce(table, message), "E-PLAN-THRESHOLDS")

    def test_a_floor_that_nobody_could_be_unmasked_with(self) -> None:
        table = small().run_to(Phase.SHARE_KEYS)
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
        table = small().run_to(Phase.SHARE_KEYS)
        honest = table.announcement(VICTIM)
        assert _with_ring_bits(table, table.plan.ring_bits) == honest.plan
        narrow = _with_ring_bits(table, 8)
        device = announce(table, dataclasses.replace(honest, plan=narrow))
        assert [type(error) for error in device.refused] == [WireError]
        assert device.sent_of(SharedKeys) == []

    def test_an_edge_that_does_not_open_in_the_strong_classes(self) -> None:
        for adversary in (SEMI, LIAR):
            table = small(adversary).run_to(Phase.MASKED_INPUT)
            device = table.devices[VICTIM]
            device.say(_spoilt(table.routed(VICTIM), 2))
            assert device.codes == ["E-SHARES-SEALED"]
            assert device.sent_of(MaskedInput) == []

    def test_an_edge_that_does_not_open_is_passed_over_by_the_curious(self) -> None:
        table = small().run_to(Phase.MASKED_INPUT)
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
        table = small().run_to(Phase.MASKED_INPUT)
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
        table = small().run_to(Phase.MASKED_INPUT)
        device = table.devices[VICTIM]
        device.say(change(table.routed(VICTIM)))
        assert device.codes == [code]
        assert device.leaves == [LeaveReason.REQUEST_REFUSED.name]
        assert device.sent_of(MaskedInput) == []

    def test_a_second_list_of_sharers_changes_nothing(self) -> None:
        table = small().run_to(Phase.UNMASKING)
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


class TestDefence12TwoViewsOfTheCommittee:
    """Two lists cannot both be certified, however the gateway splits the committee."""

    def test_each_member_signs_one_list(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        first, second = table.proposal(), table.proposal(dropped=[VICTIM])
        for name in table.committee:
            table.devices[name].say(first)
            table.devices[name].say(second)
            table.devices[name].say(first)
            assert table.devices[name].codes == ["E-CONTRADICTION"]
            assert len(set(table.devices[name].sent_of(SurvivorVote))) == 1

    @pytest.mark.parametrize("split", range(8))
    @pytest.mark.parametrize("n_corrupt", [0, 2])
    def test_no_split_gives_two_certificates(self, split: int, n_corrupt: int) -> None:
        """Corrupt members, as many as the sizes allow for, sign both lists."""
        table = sparse().run_to(Phase.UNMASKING)
        lists = (table.proposal(), table.proposal(dropped=[VICTIM]))
        corrupt = set(table.committee[:n_corrupt])
        signers: tuple[set[str], set[str]] = (set(corrupt), set(corrupt))
        for index, name in enumerate(table.committee):
            if name in corrupt:
                continue
            view = int(index >= split)
            table.devices[name].say(lists[view])
            table.devices[name].say(lists[1 - view])
            (vote,) = table.devices[name].sent_of(SurvivorVote)
            for which in (0, 1):
                honest = table.signature(name, lists[which]).signature
                if vote.signature == honest:
                    signers[which].add(name)
        needed = table.plan.thresholds.certificate
        assert min(len(found) for found in signers) < needed

    def test_a_request_against_the_own_vote(self) -> None:
        """Even with a certificate, which a corrupt committee could make."""
        table = sparse().run_to(Phase.UNMASKING)
        signer = table.committee[0]
        device = table.devices[signer]
        device.say(table.proposal())
        device.say(table.request(dropped=["d05"]))
        assert device.codes == ["E-CONTRADICTION"]
        assert device.sent_of(RevealedShares) == []
        device.restart()
        device.say(table.request(dropped=["d05"]))
        assert device.sent_of(RevealedShares) == []
        device.say(table.request())
        assert len(device.sent_of(RevealedShares)) == 1

    def test_a_vote_after_the_answer(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        device = table.devices[table.committee[0]]
        device.say(table.request())
        device.say(table.proposal(dropped=["d05"]))
        assert device.codes == ["E-CONTRADICTION"]
        assert device.sent_of(SurvivorVote) == []

    def test_a_vote_says_what_it_signs(self) -> None:
        table = sparse().run_to(Phase.UNMASKING)
        lists = table.proposal(dropped=["d05"])
        device = table.devices[table.committee[0]]
        device.say(lists)
        (vote,) = device.sent_of(SurvivorVote)
        statement = certificate_statement(table.plan.session_id, lists.survivors, lists.dropped)
        assert vote.signature == device.identity.signing_key.sign(statement)
