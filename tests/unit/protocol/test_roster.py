"""The roster: only the enrolment key extends it, and a device follows one chain of headers."""

from dataclasses import replace

import pytest

from edgefl.errors import ConfigError, RemoteProtocolError, WireError
from edgefl.protocol.merkle import MerkleTree
from edgefl.protocol.roster import Roster, _require_distinct, sign_roster
from edgefl.protocol.roster_epoch import (
    MAX_ENROLMENT_DAYS,
    MAX_HEADERS,
    NO_HASH,
    RosterEntry,
    RosterEpoch,
    RosterPin,
    fingerprint,
    young_share,
)
from tests.epoch_harness import DAY, ENROLMENT, FLEET, entry_of, make_roster, signing_key

NAMES = [f"d{index:02}" for index in range(5)]
KEY = ENROLMENT.public_key


def chain(count: int) -> Roster:
    """Return a roster of `count` epochs, one more device in each."""
    roster = None
    for number in range(count):
        roster = make_roster([f"d{index:02}" for index in range(3 + number)], roster)
    assert roster is not None
    return roster


def pin_of(header: RosterEpoch) -> RosterPin:
    return RosterPin(number=header.number, hash=header.hash)


# ---------------------------------------------------------------- signing


def test_entries_stand_in_order_and_are_proved_by_their_paths() -> None:
    roster = make_roster(NAMES[::-1])
    assert [entry.device for entry in roster.entries] == NAMES
    assert (roster.size, roster.epoch.number, roster.epoch.previous_hash) == (5, 1, NO_HASH)
    for name in NAMES:
        position = roster.position_of(name)
        assert position is not None
        roster.epoch.require_entry(entry_of(name), position, roster.path(position))
    assert roster.position_of("d99") is None


@pytest.mark.parametrize(
    ("entry", "position"),
    [
        (entry_of("d01"), 2),
        (entry_of("d01", DAY + 1), 1),
        (replace(entry_of("d01"), identity_key=bytes(32)), 1),
        (replace(entry_of("d01"), device="d02"), 1),
    ],
)
def test_another_entry_or_place_is_not_proved(entry: RosterEntry, position: int) -> None:
    roster = make_roster(NAMES)
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-PATH"):
        roster.epoch.require_entry(entry, position, roster.path(1))


def test_one_epoch_names_the_one_before() -> None:
    first = make_roster(NAMES[:3])
    second = make_roster(NAMES, first)
    assert second.epoch.number == 2
    assert second.epoch.previous_hash == first.epoch.hash
    assert second.headers == (first.epoch, second.epoch)


def test_a_roster_keeps_the_newest_headers_only() -> None:
    first = make_roster(NAMES)
    full = replace(first)
    headers = list(first.headers)
    while len(headers) < MAX_HEADERS:
        unsigned = replace(first.epoch, number=len(headers) + 1, previous_hash=headers[-1].hash)
        headers.append(replace(unsigned, signature=ENROLMENT.sign(unsigned.signed_bytes())))
    full = replace(first, headers=tuple(headers))
    following = make_roster(NAMES, full)
    assert len(following.headers) == MAX_HEADERS
    assert following.headers[0].number == 2
    assert Roster.from_bytes(following.to_bytes()) == following


def test_a_device_or_a_key_twice_is_not_signed() -> None:
    twin = replace(entry_of("d01"), device="d02")
    for entries in ([entry_of("d01"), entry_of("d01")], [entry_of("d01"), twin]):
        with pytest.raises(ConfigError, match="E-ROSTER-TWICE"):
            sign_roster(None, FLEET, entries, ENROLMENT)
    with pytest.raises(ConfigError, match="E-ROSTER-SIZE"):
        sign_roster(None, FLEET, [], ENROLMENT)


def test_a_known_device_keeps_its_key_and_its_day() -> None:
    first = make_roster(NAMES)
    for changed in (
        replace(entry_of("d01"), identity_key=signing_key("other").public_key),
        entry_of("d01", DAY + 1),
    ):
        with pytest.raises(ConfigError, match="E-ROSTER-CHANGED"):
            sign_roster(first, FLEET, [entry_of("d00"), changed], ENROLMENT)


def test_another_key_or_fleet_does_not_sign_the_next_epoch() -> None:
    first = make_roster(NAMES)
    with pytest.raises(ConfigError, match="E-ROSTER-KEY"):
        make_roster(NAMES, first, signing_key("gateway"))
    with pytest.raises(ConfigError, match="E-ROSTER-KEY"):
        sign_roster(first, "other", first.entries, ENROLMENT)


def test_a_device_that_came_back_with_a_new_key_counts_as_young() -> None:
    without = make_roster(NAMES[:2], make_roster(NAMES[:3]))
    anew = replace(
        entry_of(NAMES[2], DAY + 50), identity_key=signing_key("board set up anew").public_key
    )
    again = sign_roster(without, FLEET, [*without.entries, anew], ENROLMENT)
    assert again.epoch.enrolled_since(DAY + 50) == 1


# ---------------------------------------------------------------- the file


def test_a_roster_file_comes_back_as_it_was() -> None:
    roster = chain(3)
    assert Roster.from_bytes(roster.to_bytes()) == roster


def test_no_byte_of_a_roster_file_can_be_changed_unseen() -> None:
    content = make_roster(NAMES[:2]).to_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises((WireError, RemoteProtocolError)):
            Roster.from_bytes(bytes(changed))


def test_a_root_over_a_device_twice_is_refused_even_if_it_was_signed() -> None:
    honest = make_roster(NAMES[:2])
    entries = (entry_of("d00"), entry_of("d00"))
    with pytest.raises(WireError, match="E-ROSTER-TWICE"):
        _require_distinct(entries)
    unsigned = replace(honest.epoch, root=MerkleTree([entry.leaf() for entry in entries]).root)
    signed = replace(unsigned, signature=ENROLMENT.sign(unsigned.signed_bytes()))
    with pytest.raises(WireError, match="E-ROSTER-TWICE"):
        Roster(enrolment_key=KEY, headers=(signed,), entries=entries)


# ---------------------------------------------------------------- following


def test_a_pin_follows_chains_that_reach_back_to_it() -> None:
    headers = chain(5).headers
    start = RosterPin().advance(headers[:1], KEY)
    assert start == pin_of(headers[0])
    for first in range(2):
        assert start.advance(headers[first:], KEY) == pin_of(headers[4])
    assert pin_of(headers[3]).advance(headers, KEY) == pin_of(headers[4])
    assert pin_of(headers[4]).advance(headers[4:], KEY) == pin_of(headers[4])


def test_the_first_pin_may_begin_anywhere() -> None:
    headers = chain(5).headers
    assert RosterPin().advance(headers[3:], KEY) == pin_of(headers[4])


def test_a_fork_is_refused() -> None:
    trunk = chain(2)
    ours, theirs = make_roster(NAMES[:4], trunk), make_roster(NAMES, trunk)
    pin = pin_of(ours.epoch)
    for headers in (theirs.headers, theirs.headers[-1:], make_roster(NAMES, theirs).headers[-1:]):
        with pytest.raises(RemoteProtocolError, match="E-ROSTER-FORK"):
            pin.advance(headers, KEY)


def test_a_chain_that_changes_over_to_a_fork_is_refused() -> None:
    ours, theirs = make_roster(NAMES[:4]), make_roster(NAMES)
    following = make_roster(NAMES, theirs)
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-FORK"):
        pin_of(ours.epoch).advance((ours.epoch, following.epoch), KEY)
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-FORK"):
        RosterPin().advance((ours.epoch, following.epoch), KEY)


def test_a_rollback_is_refused() -> None:
    headers = chain(5).headers
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-ROLLBACK"):
        pin_of(headers[4]).advance(headers[:4], KEY)


@pytest.mark.parametrize("kept", [[], [3, 4], [0, 1, 3, 4], [1, 0], [1, 1]])
def test_a_gap_or_another_order_is_refused(kept: list[int]) -> None:
    headers = chain(5).headers
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-GAP"):
        pin_of(headers[1]).advance([headers[index] for index in kept], KEY)


def test_another_signer_is_refused() -> None:
    minted = make_roster(NAMES, key=signing_key("gateway"))
    with pytest.raises(RemoteProtocolError, match="E-ROSTER-SIGNATURE"):
        RosterPin().advance(minted.headers, KEY)
    trunk = chain(2)
    unsigned = replace(minted.epoch, number=3, previous_hash=trunk.epoch.hash, signature=bytes(64))
    by_gateway = replace(unsigned, signature=signing_key("gateway").sign(unsigned.signed_bytes()))
    for header in (unsigned, by_gateway):
        with pytest.raises(RemoteProtocolError, match="E-ROSTER-SIGNATURE"):
            pin_of(trunk.epoch).advance((*trunk.headers, header), KEY)


def test_a_changed_header_is_refused() -> None:
    header = make_roster(NAMES).epoch
    changes = {
        "fleet": "other",
        "root": bytes(32),
        "enrolled_by_day": ((DAY - 900, 5),),
        "signature": bytes(64),
    }
    for name, value in changes.items():
        with pytest.raises(RemoteProtocolError, match="E-ROSTER-SIGNATURE"):
            RosterPin().advance([replace(header, **{name: value})], KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 4},
        {"enrolled_by_day": ((DAY, 3), (DAY, 2))},
        {"enrolled_by_day": ((DAY, 3), (DAY - 1, 2))},
        {"enrolled_by_day": ((DAY, 5), (DAY + 1, 0))},
        {"enrolled_by_day": tuple((day, 1) for day in range(MAX_ENROLMENT_DAYS + 1)), "size": 401},
    ],
)
def test_counts_by_day_that_do_not_add_up_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(WireError, match="E-ROSTER-DAYS"):
        replace(make_roster(NAMES).epoch, **changes)


@pytest.mark.parametrize("changes", [{"number": 2}, {"previous_hash": bytes(31) + b"x"}])
def test_only_the_first_epoch_has_none_before(changes: dict[str, object]) -> None:
    with pytest.raises(WireError, match="E-ROSTER-PREVIOUS"):
        replace(make_roster(NAMES).epoch, **changes)


@pytest.mark.parametrize("device", ["", "aggregator", "UPPER", "a b", "\x1b[31m", "x" * 65, "-a"])
def test_names_that_no_device_has_are_refused(device: str) -> None:
    with pytest.raises(WireError, match="E-ROSTER-ENTRY"):
        RosterEntry(device=device, identity_key=bytes(32), enrolled_day=DAY)


# ---------------------------------------------------------------- young identities


def test_young_identities_are_counted_from_the_signed_header() -> None:
    entries = [entry_of(f"d{index:02}", DAY + index) for index in range(10)]
    epoch = sign_roster(None, FLEET, entries, ENROLMENT).epoch
    assert [epoch.enrolled_since(DAY + day) for day in (-5, 0, 7, 9, 10)] == [10, 10, 3, 1, 0]
    assert young_share(epoch, since_day=DAY + 7) == pytest.approx(0.3)


def test_new_identities_over_the_cap_show_in_the_worst_cohort() -> None:
    # A gateway that has 6 of 20 identities minted yesterday can call those six and two others.
    old = [entry_of(f"old{index:02}", DAY) for index in range(14)]
    minted = [entry_of(f"new{index:02}", DAY + 400) for index in range(6)]
    epoch = sign_roster(None, FLEET, [*old, *minted], ENROLMENT).epoch
    assert young_share(epoch, since_day=DAY + 300) == pytest.approx(0.3)
    assert young_share(epoch, since_day=DAY + 300, among=8) == pytest.approx(0.75)
    assert young_share(epoch, since_day=DAY + 300, among=5) == 1.0
    assert young_share(epoch, since_day=DAY + 401, among=5) == 0.0


def test_more_days_than_a_header_holds_are_merged_toward_young() -> None:
    entries = [entry_of(f"d{index:03}", DAY + index) for index in range(MAX_ENROLMENT_DAYS + 7)]
    epoch = sign_roster(None, FLEET, entries, ENROLMENT).epoch
    assert len(epoch.enrolled_by_day) == MAX_ENROLMENT_DAYS
    for day in range(DAY, DAY + len(entries)):
        true_count = sum(1 for entry in entries if entry.enrolled_day >= day)
        assert true_count <= epoch.enrolled_since(day) <= true_count + 7


def test_fingerprints_tell_keys_apart() -> None:
    names = {fingerprint(entry_of(name).identity_key) for name in NAMES}
    assert len(names) == 5
    assert all(len(name) == 24 for name in names)
