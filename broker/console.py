"""Lines for the operator: one for each phase, each round, each long wait."""

import math
from collections import Counter

from broker.console_links import refused_line, taken_over_line
from broker.events import Json, Reported
from broker.mended import MENDED


def format_report(report: Reported) -> str:
    """Return one line for a terminal."""
    formatter = _FORMATTERS.get(report.kind)
    if formatter is not None:
        return formatter(report.fields)
    pairs = " ".join(f"{name}={value}" for name, value in report.fields.items())
    return f"{report.kind}: {pairs}"


def _phase(fields: dict[str, Json]) -> str:
    return (
        f"round {fields['round']} (attempt {fields['attempt']}) {fields['phase']}: "
        f"{fields['expected']} devices, {fields['needed']} needed"
    )


def _resumed(fields: dict[str, Json]) -> str:
    return (
        f"round {fields['round']} (attempt {fields['attempt']}) goes on in {fields['phase']}: "
        f"{fields['have']}/{fields['need']}"
    )


def _round(fields: dict[str, Json]) -> str:
    head = f"round {fields['round']} (attempt {fields['attempt']}) {fields['outcome']}"
    if "phases" not in fields:
        return f"{head}: {fields['reason']} in {fields.get('in_phase')}"
    dropouts = fields["dropouts"]
    drops = Counter(
        f"{drop['phase']}/{drop['reason']}"
        for drop in (dropouts if isinstance(dropouts, list) else [])
        if isinstance(drop, dict)
    )
    dropped = ", ".join(f"{count} {what}" for what, count in sorted(drops.items())) or "none"
    if fields["outcome"] != "COMMITTED":
        return f"{head}: {fields['reason']}; dropped: {dropped}"
    return (
        f"{head}: sum of {fields['survivors']} devices, check held; dropped: {dropped}; "
        f"epsilon {_number(fields['epsilon_server'])} server, "
        f"{_number(fields['epsilon_release'])} release"
    )


def _key_epoch(fields: dict[str, Json]) -> str:
    return (
        f"key epoch {fields['number']} open: {fields['members']} of {fields['enrolled']} enrolled "
        f"devices, roster {fields['roster']} ({fields['trust']})"
    )


def _key_epoch_aborted(fields: dict[str, Json]) -> str:
    silent = fields["silent"]
    names = f", silent: {', '.join(map(str, silent[:8]))}" if isinstance(silent, list) else ""
    return f"key epoch {fields['number']} did not open: {fields['reason']}{names}"


def _key_epoch_full(fields: dict[str, Json]) -> str:
    return (
        f"key epoch {fields['number']} is full: {fields['left_out']} devices were not drawn for "
        "it; split a fleet of this size over several gateways"
    )


def _refused_more(fields: dict[str, Json]) -> str:
    return (
        f"refused {fields['more']:,} more within {_number(fields['within_s'])} s: {fields['code']}"
    )


def _devices_more(fields: dict[str, Json]) -> str:
    return f"{fields['code']}: {fields['more']:,} more within {_number(fields['within_s'])} s"


def _enrolment(fields: dict[str, Json]) -> str:
    leaving = fields.get("leaving")
    names = ", ".join(str(name) for name in leaving[:8]) if isinstance(leaving, list) else ""
    out = f", {len(leaving)} revoked have to leave ({names})" if isinstance(leaving, list) else ""
    return (
        f"{fields['waiting']} devices wait to be enrolled{out}: sign roster-request.json with "
        "'edgefl roster sign' and put the result beside it as roster.cbor"
    )


def _enrolment_state(fields: dict[str, Json]) -> str:
    device, why = fields["device"], f" ({fields['why']})" if fields["why"] else ""
    line = f"{device} is {fields['state']}{why}, key {fields['fingerprint']}"
    if fields["state"] != "pending":
        return line
    return f"{line}: compare it with the board's, then 'edgefl devices accept {device}'"


def _waiting(fields: dict[str, Json]) -> str:
    silent = fields.get("silent")
    names = (
        f", silent: {', '.join(str(name) for name in silent[:8])}"
        if isinstance(silent, list)
        else ""
    )
    return f"waiting for {fields['for']}: {fields['have']}/{fields['need']}{names}"


def _evaluated(fields: dict[str, Json]) -> str:
    name = "loss" if fields["accuracy"] is None else "accuracy"
    int8 = fields.get("int8_accuracy")
    beside = "" if int8 is None else f" ({_number(int8, 3)} as int8)"
    return (
        f"round {fields['round']} {name} {_number(fields[name], 3)}{beside} on "
        f"{fields['examples']} examples held out"
    )


def _gateway(fields: dict[str, Json]) -> str:
    page = f"; status page {fields['http']}" if "http" in fields else ""
    addresses = fields["addresses"]
    where = ", ".join(map(str, addresses)) if isinstance(addresses, list) else ""
    return f"gateway of fleet {fields['fleet']} on {where}, process {fields['pid']}{page}"


def _task(fields: dict[str, Json]) -> str:
    planned = fields["epsilon_planned"]
    epsilon = (
        f"epsilon {_number(planned)} when done"
        if isinstance(planned, int | float) and math.isfinite(planned)
        else "no noise, so no bound on epsilon"
    )
    return (
        f"task {fields['task']}: {fields['committed']} of {fields['rounds']} rounds committed, "
        f"{fields['dimension']} parameters in {fields['ring_bits']} bits, {epsilon}"
    )


def _task_refused(fields: dict[str, Json]) -> str:
    return f"task {fields['task']} is refused: {fields['why']}"


def _task_wish(fields: dict[str, Json]) -> str:
    return f"task {fields['task']}: the operator says {fields['wish']}"


def _task_ended(fields: dict[str, Json]) -> str:
    return f"task {fields['task']} {fields['outcome']}: {fields['reason']}"


def _mended(fields: dict[str, Json]) -> str:
    return str(fields["text"])


def _number(value: Json, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else str(value)


_FORMATTERS = {
    "gateway": _gateway,
    "task": _task,
    "task-refused": _task_refused,
    "task-wish": _task_wish,
    "key-epoch": _key_epoch,
    "key-epoch-aborted": _key_epoch_aborted,
    "key-epoch-full": _key_epoch_full,
    "refused-more": _refused_more,
    "devices-more": _devices_more,
    "enrolment": _enrolment,
    "enrolment-state": _enrolment_state,
    "mqtt-refused": refused_line,
    "mqtt-taken-over": taken_over_line,
    "phase": _phase,
    "resumed": _resumed,
    "round": _round,
    "waiting": _waiting,
    "evaluated": _evaluated,
    MENDED: _mended,
    "task-ended": _task_ended,
}
