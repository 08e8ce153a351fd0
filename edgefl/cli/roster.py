"""`edgefl roster`: make the enrolment key, and sign who belongs to the fleet."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import DEFAULT_FLEET, add_common, add_json
from edgefl.errors import ConfigError

if TYPE_CHECKING:
    from edgefl.protocol.roster import Roster
    from edgefl.protocol.roster_epoch import RosterEntry
    from edgefl.storage.enrolment import RosterCandidate

_DAY_S = 24 * 3600
_OFF_THE_GATEWAY = (
    "Keep the key off the gateway: with it there, the fleet is safe against an honest-but-curious "
    "gateway only, since a gateway that mints identities can surround a victim."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    init = commands.add_parser(
        "init",
        help="make the enrolment key",
        description="Make the key that signs rosters, in a new file that its owner alone can read. "
        + _OFF_THE_GATEWAY,
    )
    init.add_argument("--key", type=Path, required=True, help="new file for the key")
    add_json(init)
    add_common(init)
    init.set_defaults(run=run_init)
    _add_sign(commands)
    show = commands.add_parser(
        "show",
        help="check a roster and show it",
        description="Check signatures, chain and entries of a roster file, and show it. Compare "
        "the fingerprint of the enrolment key with the one that 'roster init' printed.",
    )
    show.add_argument("roster", type=Path, help="a roster file")
    add_json(show)
    add_common(show)
    show.set_defaults(run=run_show)


def _add_sign(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sign = commands.add_parser(
        "sign",
        help="sign the next roster",
        description="Enrol the devices of a gateway's request, which is not signed: look at its "
        "fingerprints before you sign. Devices of the previous roster stay, but those that the "
        "request names as revoked; without --previous "
        "this is the first roster. " + _OFF_THE_GATEWAY,
    )
    sign.add_argument("request", type=Path, help="the JSON list that the gateway wrote")
    sign.add_argument("--key", type=Path, required=True, help="file of the enrolment key")
    sign.add_argument("--previous", type=Path, help="the roster before; left out for the first one")
    sign.add_argument("-o", "--output", type=Path, required=True, help="roster file to write")
    sign.add_argument(
        "--fleet", help=f"the fleet's name (default: the previous roster's, or {DEFAULT_FLEET})"
    )
    sign.add_argument(
        "--remove", action="append", default=[], metavar="DEVICE", help="enrol it no more"
    )
    add_json(sign)
    add_common(sign)
    sign.set_defaults(run=run_sign)


def run_init(options: argparse.Namespace) -> int:
    """Make the enrolment key."""
    from edgefl.protocol.roster_epoch import fingerprint
    from edgefl.storage.enrolment import create_enrolment_key

    public_key = create_enrolment_key(options.key).public_key
    name = fingerprint(public_key)
    facts = {"key_file": str(options.key), "public_key": public_key.hex(), "fingerprint": name}
    _print(
        facts,
        [
            f"enrolment key {name} in {options.key}",
            f"public key    {public_key.hex()}",
            _OFF_THE_GATEWAY,
        ],
        options,
    )
    return 0


def run_sign(options: argparse.Namespace) -> int:
    """Sign the next roster."""
    from edgefl.protocol.roster import sign_roster
    from edgefl.protocol.topics import parse_fleet
    from edgefl.storage.enrolment import (
        read_enrolment_key,
        read_leaving,
        read_request,
        read_roster,
        write_roster,
    )

    key = read_enrolment_key(options.key)
    previous = None if options.previous is None else read_roster(options.previous)
    _require_no_fork(options.output, previous)
    default_fleet = DEFAULT_FLEET if previous is None else previous.epoch.fleet
    fleet = parse_fleet(options.fleet or default_fleet)
    before = () if previous is None else previous.entries
    known = {entry.device for entry in before}
    # The gateway's operator has revoked these; who is not in the roster has nothing to leave.
    leaving = [name for name in read_leaving(options.request) if name in known]
    removed = list(dict.fromkeys([*options.remove, *leaving]))
    entries = _next_entries(before, read_request(options.request), removed)
    if entries == before:
        raise ConfigError("E-ROSTER-UNCHANGED", "a device to add or remove", "none")
    roster = sign_roster(previous, fleet, entries, key)
    write_roster(options.output, roster)
    added = [entry for entry in roster.entries if entry.device not in known]
    lines = [_line(entry, "added") for entry in added]
    lines += [
        f"removed {device}{' (revoked at the gateway)' if device in leaving else ''}"
        for device in removed
    ]
    _print(_facts(roster), [*lines, _summary(roster), f"written to {options.output}"], options)
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Check a roster and show it."""
    from edgefl.storage.enrolment import read_roster

    roster = read_roster(options.roster)
    entries = [_line(entry, "device") for entry in roster.entries]
    _print(_facts(roster), [_summary(roster), *entries], options)
    return 0


def _require_no_fork(output: Path, previous: "Roster | None") -> None:
    """Refuse to sign beside a roster that is not the previous one: devices would see two."""
    from edgefl.storage.enrolment import read_roster

    if not output.exists():
        return
    there = read_roster(output).epoch
    if previous is None or there.hash != previous.epoch.hash:
        raise ConfigError(
            "E-ROSTER-PREVIOUS",
            f"roster {there.number}, which is in {output}, as --previous",
            "none" if previous is None else f"roster {previous.epoch.number}",
            "devices refuse two rosters of one number",
        )


def _next_entries(
    before: "Sequence[RosterEntry]",
    candidates: "Sequence[RosterCandidate]",
    removed: Sequence[str],
) -> "tuple[RosterEntry, ...]":
    """Return the entries of the next roster: those before, those asked for, without the removed."""
    from edgefl.protocol.roster_epoch import RosterEntry, fingerprint

    entries = {entry.device: entry for entry in before}
    for device in removed:
        if entries.pop(device, None) is None:
            raise ConfigError("E-ROSTER-REMOVE", "a device of the previous roster", repr(device))
    today = int(time.time() // _DAY_S)
    for candidate in candidates:
        if candidate.device in removed:
            # The gateway's request may still name it. It can come back with the next roster.
            continue
        entry = RosterEntry(
            device=candidate.device, identity_key=candidate.identity_key, enrolled_day=today
        )
        known = entries.setdefault(candidate.device, entry)
        if known.identity_key != candidate.identity_key:
            raise ConfigError(
                "E-ROSTER-CHANGED",
                f"key {fingerprint(known.identity_key)} of {candidate.device}",
                f"key {fingerprint(candidate.identity_key)}",
                f"if the board was set up anew, sign once with --remove {candidate.device}, then "
                "again",
            )
    return tuple(sorted(entries.values(), key=lambda entry: entry.device))


def _facts(roster: "Roster") -> dict[str, object]:
    from edgefl.protocol.roster_epoch import fingerprint

    epoch = roster.epoch
    return {
        "fleet": epoch.fleet,
        "number": epoch.number,
        "hash": epoch.hash.hex(),
        "previous_hash": epoch.previous_hash.hex(),
        "enrolment_key": roster.enrolment_key.hex(),
        "enrolment_key_fingerprint": fingerprint(roster.enrolment_key),
        "size": roster.size,
        "devices": [
            {
                "device": entry.device,
                "identity_key": entry.identity_key.hex(),
                "fingerprint": fingerprint(entry.identity_key),
                "enrolled": _date(entry.enrolled_day),
            }
            for entry in roster.entries
        ],
    }


def _summary(roster: "Roster") -> str:
    from edgefl.protocol.roster_epoch import fingerprint

    epoch = roster.epoch
    return (
        f"roster {epoch.number} of fleet {epoch.fleet}: {roster.size} devices, "
        f"hash {epoch.hash.hex()[:16]}, enrolment key {fingerprint(roster.enrolment_key)}"
    )


def _line(entry: "RosterEntry", what: str) -> str:
    from edgefl.protocol.roster_epoch import fingerprint

    return (
        f"{what:<7} {entry.device}  key {fingerprint(entry.identity_key)}  "
        f"enrolled {_date(entry.enrolled_day)}"
    )


def _date(day: int) -> str:
    """Return the date of a day; the largest day that a file can hold is beyond any calendar."""
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(day * _DAY_S))
    except (OverflowError, ValueError, OSError):
        return f"day {day}"


def _print(
    facts: dict[str, object] | dict[str, str], lines: Sequence[str], options: argparse.Namespace
) -> None:
    text = json.dumps(facts) if options.json else "\n".join(lines)
    sys.stdout.write(text + "\n")
