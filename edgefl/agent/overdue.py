"""Notices a training that hangs: nobody can know how long one takes, but when nobody waits for it.

A thread cannot be ended from outside, so what remains is to give no sign of life any more: then the
service manager starts the agent anew.
"""

from typing import Final

UNWANTED_S: Final = 3600.0
"""How long a job may outlive its round: a slow one ends, and its device is free again."""
LONGEST_S: Final = 25 * 3600.0
"""No phase is longer than a day, whatever became of the gateway."""


class OverdueJobs:
    """Knows since when jobs are under way, and since when nobody waits for them.

    Args:
        unwanted_s: How long a job may go on after its round.
        longest_s: How long a job may take at all.
    """

    def __init__(self, unwanted_s: float = UNWANTED_S, longest_s: float = LONGEST_S) -> None:
        """Know of none."""
        self._unwanted_s = unwanted_s
        self._longest_s = longest_s
        self._due_s: dict[object, float] = {}

    def begins(self, job: object, now_s: float) -> None:
        """Note that a job was handed to the thread."""
        self._due_s[job] = now_s + self._longest_s

    def ends(self, job: object) -> None:
        """Note that a job is over."""
        self._due_s.pop(job, None)

    def round_is_over(self, now_s: float) -> None:
        """Note that nobody waits any more for the jobs that are under way."""
        unwanted_s = now_s + self._unwanted_s
        self._due_s = {job: min(due_s, unwanted_s) for job, due_s in self._due_s.items()}

    def hangs(self, now_s: float) -> bool:
        """Tell whether some job should have ended long ago."""
        return any(now_s >= due_s for due_s in self._due_s.values())
