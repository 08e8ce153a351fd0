"""Defences of a device before a share leaves it: certificate, lists, floors (5 to 7, 10, 12).

The numbers are those of the twelve defences against a malicious gateway in secagg.md.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import pytest

from edgefl.errors import WireError
from edgefl.protocol.certificate import SurvivorCertificate, certificate_statement
from edgefl.protocol.device_session import DeviceSession
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.round_messages import (
    MaskedInput,
    RevealedShares,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.wire import encode_bitmap
from tests.device_fixtures import CURIOUS, GATEWAY, LIAR, TODAY
from tests.device_harness import Table
from tests.epoch_harness import DAY
from tests.hostile_gateway import (
    SEMI,
    VICTIM,
    announce,
    assert_nothing_revealed,
    assert_plan_refused,
    small,
    small_in,
    sparse_in,
)
from tests.round_boards import POLICY


class TestDefence5NoShareWithoutACertificate:
    """In the malicious class at least t_c members of the committee signed exactly these lists."""

    def test_none(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        lists = table.proposal()
        device = table.devices[VICTIM]
        device.say(
            UnmaskRequest(survivors=lists.survivors, dropped=lists.dropped, certificate=None)
        )
        assert_nothing_revealed(device, "E-CERTIFICATE-MISSING")

    def test_one_signature_too_few(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(), table.committee[:4])
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-FEW")

    @pytest.mark.parametrize("count", [5, 6, 7])
    def test_enough(self, count: int) -> None:
        table = sparse_in(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(), table.committee[:count])
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert device.codes == []
        assert len(device.sent_of(RevealedShares)) == 1

    def test_over_other_lists(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        certificate = table.certificate(table.proposal(dropped=["d05"]))
        device = table.devices[VICTIM]
        device.say(table.request(certificate=certificate))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    def test_one_forged_signature_among_enough(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        lists = table.proposal()
        honest = [table.signature(name, lists) for name in table.committee[:4]]
        forged = table.signature(table.committee[4], lists, key=GATEWAY)
        device = table.devices[VICTIM]
        device.say(table.request(certificate=_certificate([*honest, forged])))
        assert_nothing_revealed(device, "E-CERTIFICATE-SIGNATURE")

    def test_an_entry_that_is_not_in_the_roster(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        lists = table.proposal()
        honest = [table.signature(name, lists) for name in table.committee[:4]]
        last = table.signature(table.committee[4], lists, key=GATEWAY)
        entry = dataclasses.replace(last.entry, identity_key=GATEWAY.public_key)
        device = table.devices[VICTIM]
        made_up = dataclasses.replace(last, entry=entry)
        device.say(table.request(certificate=_certificate([*honest, made_up])))
        assert_nothing_revealed(device, "E-ROSTER-PATH")

    def test_one_signer_twice(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        once = table.signature(table.committee[0], table.proposal())
        with pytest.raises(WireError, match="E-WIRE-CERTIFICATE"):
            _certificate([once] * 5)

    def test_a_certificate_where_none_belongs(self) -> None:
        table = small_in(Phase.UNMASKING)
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
        device = small_in(Phase.UNMASKING).devices[VICTIM]
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
        table = small_in(Phase.UNMASKING, LIAR)
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
        table = small_in(Phase.UNMASKING)
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
        table = small_in(Phase.MASKED_INPUT, adversary)
        name = table.committee[0] if table.committee else VICTIM
        device = table.devices[name]
        device.is_busy = True
        device.say(table.routed(name))
        device.say(table.proposal() if table.committee else table.request())
        assert device.codes == ["E-UNMASK-EARLY"]
        assert device.sent_of(RevealedShares) == []
        assert device.sent_of(SurvivorVote) == []

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
        table = small_in(Phase.UNMASKING)
        for name, request in itertools.product(
            table.members, (table.request(), table.request(dropped=["d05"]))
        ):
            table.devices[name].say(request)
            table.devices[name].say(request)
        assert _kinds_revealed(table) == {name: {"seed"} for name in table.members}

    @pytest.mark.parametrize("split", range(7))
    def test_two_views_cannot_open_both_secrets(self, split: int) -> None:
        """Some devices are told that the victim survived, the others that it dropped out."""
        table = small_in(Phase.UNMASKING, SEMI)
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
        table = small_in(Phase.UNMASKING)
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
    state = DeviceState.from_bytes(device.flash.round, device.flash.spool)
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


class TestDefence10FloorsAfterDrops:
    """The survivor floor is checked again after each drop, and so are the ring's windows."""

    def test_too_few_shared_keys(self) -> None:
        table = small_in(Phase.MASKED_INPUT)
        device = table.devices[VICTIM]
        device.say(table.routed(VICTIM, missing=["d04", "d05"]))
        assert device.codes == ["E-SHARES-FEW"]
        assert device.sent_of(MaskedInput) == []

    @pytest.mark.parametrize("n_dropped", [1, 2, 3])
    def test_too_few_survivors(self, n_dropped: int) -> None:
        table = small_in(Phase.UNMASKING)
        device = table.devices[VICTIM]
        device.say(table.request(dropped=table.members[-n_dropped:]))
        if n_dropped == 1:
            assert device.codes == []
        else:
            assert_nothing_revealed(device, "E-UNMASK-FEW")

    def test_an_arc_of_the_ring_is_not_given_up(self) -> None:
        """Enough survivors, and yet a window of the ring without any: a cut."""
        table = sparse_in(Phase.UNMASKING)
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
        table = sparse_in(Phase.UNMASKING)
        signer = table.committee[0]
        other = next(name for name in table.members if name != signer)
        table.devices[signer].say(table.proposal(dropped=[other]))
        assert len(table.devices[signer].sent_of(SurvivorVote)) == 1

    def test_windows_are_checked_before_shares_leave_too(self) -> None:
        """Though a corrupt committee signed."""
        table = sparse_in(Phase.UNMASKING)
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
        table = sparse_in(Phase.MASKED_INPUT)
        missing = table.neighbours(VICTIM)[:4]
        device = table.devices[VICTIM]
        device.say(table.routed(VICTIM, missing=missing))
        assert device.codes == ["E-SHARES-NEIGHBOURS"]
        assert device.sent_of(MaskedInput) == []


class TestDefence12TwoViewsOfTheCommittee:
    """Two lists cannot both be certified, however the gateway splits the committee."""

    def test_each_member_signs_one_list(self) -> None:
        table = sparse_in(Phase.UNMASKING)
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
        table = sparse_in(Phase.UNMASKING)
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
        table = sparse_in(Phase.UNMASKING)
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
        table = sparse_in(Phase.UNMASKING)
        device = table.devices[table.committee[0]]
        device.say(table.request())
        device.say(table.proposal(dropped=["d05"]))
        assert device.codes == ["E-CONTRADICTION"]
        assert device.sent_of(SurvivorVote) == []

    def test_a_vote_says_what_it_signs(self) -> None:
        table = sparse_in(Phase.UNMASKING)
        lists = table.proposal(dropped=["d05"])
        device = table.devices[table.committee[0]]
        device.say(lists)
        (vote,) = device.sent_of(SurvivorVote)
        statement = certificate_statement(table.plan.session_id, lists.survivors, lists.dropped)
        assert vote.signature == device.identity.signing_key.sign(statement)
