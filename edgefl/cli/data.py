"""`edgefl data`: look into a device's training data, on the device."""

import argparse
import datetime
import json
import sys
from pathlib import Path

from edgefl.cli.options import add_common, add_json
from edgefl.data.check import ChannelRange, Findings, judge
from edgefl.data.reading import Reading
from edgefl.data.schema import DataSchema, schema_of
from edgefl.data.source import SPELLINGS, open_source
from edgefl.errors import DataError

_UNUSABLE = DataError.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    check = commands.add_parser(
        "check",
        help="say what a source holds, and whether a model can be trained on it",
        description="Say what a source holds, what is left out and why, and whether it fits a "
        "model. It only reads, and nothing leaves this device; of the data themselves it shows "
        "counts, ranges and labels outside the list. Exit code 2: an agent could not train on it.",
    )
    check.add_argument("source", help=SPELLINGS)
    check.add_argument("--bundle", type=Path, help="the model's bundle (.efl)")
    add_json(check)
    add_common(check)
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Read once, and show what is found."""
    source = open_source(options.source)
    schema = _schema(options.bundle)
    reading = source.examine(schema)
    findings = judge(reading, schema, source.name)
    if options.json:
        sys.stdout.write(json.dumps(_document(source.name, reading, findings, schema)) + "\n")
    else:
        sys.stdout.write(_text(source.name, reading, findings, schema))
    return _UNUSABLE if findings.problems else 0


def _schema(bundle: Path | None) -> DataSchema | None:
    if bundle is None:
        return None
    from edgefl.storage.files import require_file
    from edgefl.training.bundle import read_bundle

    require_file(bundle)
    return schema_of(read_bundle(bundle).manifest)


def _document(
    name: str, reading: Reading, findings: Findings, schema: DataSchema | None
) -> dict[str, object]:
    return {
        "source": name,
        "fits": None if schema is None else not findings.problems,
        "examples": len(reading.x),
        "shape": list(reading.x.shape[1:]),
        "type": str(reading.x.dtype),
        "classes": list(findings.classes),
        "class_names": list(reading.class_names),
        "rows": reading.rows,
        "files": reading.files,
        "first_time_s": reading.first_time_s,
        "last_time_s": reading.last_time_s,
        "left_out": {
            reason.name.lower(): {"count": count, "first": reading.first_places.get(reason)}
            for reason, count in reading.left_out.items()
            if count
        },
        "clock_steps": reading.clock_steps,
        "skipped_bytes": reading.skipped_bytes,
        "channels": [_channel(channel) for channel in findings.channels],
        "memory_bytes": findings.memory_bytes,
        "problems": [str(problem) for problem in findings.problems],
        "warnings": list(findings.warnings),
    }


def _channel(channel: ChannelRange) -> dict[str, object]:
    is_known = channel.least <= channel.most
    return {
        "name": channel.name,
        "least": channel.least if is_known else None,
        "most": channel.most if is_known else None,
        "is_constant": channel.is_constant,
        "is_saturated": channel.is_saturated,
        "faulty_share": channel.faulty_share,
    }


def _text(name: str, reading: Reading, findings: Findings, schema: DataSchema | None) -> str:
    lines = [
        f"{name}: read on this device; nothing is sent anywhere",
        _found(reading),
        *_times(reading),
        *_classes(reading, findings),
        *_left_out(reading),
        *_channels(findings),
        f"memory: {_size(findings.memory_bytes)} for the examples, up to twice that while reading",
        *(f"warning: {warning}" for warning in findings.warnings),
        *(f"problem: {problem}" for problem in findings.problems),
        _verdict(findings, schema),
    ]
    return "".join(f"{line}\n" for line in lines)


def _found(reading: Reading) -> str:
    shape = f"{len(reading.x)} examples, {reading.x.dtype} {list(reading.x.shape[1:])}"
    rows = f", from {reading.rows} rows" if reading.rows else ""
    files = f" in {reading.files} file{'s' * (reading.files != 1)}" if reading.files else ""
    return f"found: {shape}{rows}{files}"


def _times(reading: Reading) -> list[str]:
    first_s, last_s = reading.first_time_s, reading.last_time_s
    if first_s is None or last_s is None:
        return []
    hours = (last_s - first_s) / 3600
    return [f"time: {_moment(first_s)} to {_moment(last_s)} ({hours:.1f} h)"]


def _moment(time_s: float) -> str:
    """Return a date; seconds as they are where they do not count from 1970."""
    if not 1e8 < time_s < 1e11:
        return f"{time_s:.3f} s"
    moment = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _classes(reading: Reading, findings: Findings) -> list[str]:
    if not findings.classes:
        return []
    names = reading.class_names
    return [
        "classes:",
        *(
            f"  {number} {names[number] if number < len(names) else ''}".rstrip() + f": {count}"
            for number, count in enumerate(findings.classes)
        ),
    ]


def _left_out(reading: Reading) -> list[str]:
    counted = [(reason, count) for reason, count in reading.left_out.items() if count]
    if not counted:
        return []
    lines = ["left out:"]
    for reason, count in counted:
        place = reading.first_places.get(reason)
        lines.append(f"  {reason.value}: {count}" + (f" (first: {place})" if place else ""))
    return lines


def _channels(findings: Findings) -> list[str]:
    if not findings.channels:
        return []
    return [
        "ranges, as the model sees them:",
        *(f"  {one.name}: {one.least:.6g} to {one.most:.6g}" for one in findings.channels),
    ]


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:.1f} KiB" if size_bytes < 2**20 else f"{size_bytes / 2**20:.1f} MiB"


def _verdict(findings: Findings, schema: DataSchema | None) -> str:
    if findings.problems:
        return "an agent cannot train on this; mend the problems above"
    if schema is None:
        return "sound; give --bundle to see whether it fits a model"
    return "fits the bundle: an agent can train on this"
