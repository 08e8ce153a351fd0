"""What one line of `edgefl doctor` says."""

import enum
from dataclasses import dataclass


class Status(enum.Enum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report.

    Attributes:
        name: What was looked at.
        status: Only `WRONG` fails the command.
        found: What is there.
        advice: What to do, where something is to be done.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
