"""What a gateway mended at its start: said in its log, in its events, and on every status."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.events import Reported
from broker.problems import Problem

MENDED: Final = "mended"
"""The kind of such a report."""


def state_mended(path: Path, aside: Path) -> Reported:
    """Say that the copy of the state file was taken.

    Args:
        path: The state file.
        aside: Where the damaged file is; not there where there was none.
    """
    is_kept = aside.exists()
    what = f"was damaged and is kept as {aside.name}" if is_kept else "was gone"
    return _mended(
        path,
        aside if is_kept else None,
        f"{path.name} {what}; the gateway goes on from the copy before it: a round may have to be "
        "repeated, and the privacy ledger is as it was",
    )


def ledger_mended(path: Path, aside: Path | None, rows: int) -> Reported:
    """Say that the ledger was written anew.

    Args:
        path: The ledger.
        aside: Where the damaged file is; None where there was none.
        rows: How many rows were written, which are all.
    """
    what = "was gone" if aside is None else f"was damaged and is kept as {aside.name}"
    return _mended(
        path,
        aside,
        f"{path.name} {what}; it was written anew with all {rows} rows from the copy in the state "
        "file",
    )


def mended_problems(reports: Sequence[Reported]) -> list[Problem]:
    """Say so for as long as the gateway runs: whoever looks may not have seen its start."""
    return [
        Problem(code="state-mended", text=f"{report.fields['text']}: look at the disk")
        for report in reports
    ]


def _mended(path: Path, aside: Path | None, text: str) -> Reported:
    kept_as = None if aside is None else aside.name
    return Reported(kind=MENDED, fields={"file": path.name, "kept_as": kept_as, "text": text})
