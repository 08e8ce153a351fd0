"""When a wait is spoken of again."""

from edgefl.agent.reminder import Reminder


def said_at(duration_s: int) -> list[int]:
    """Seconds at which a line is due, looked at every second."""
    reminder = Reminder(100.0)
    return [second for second in range(duration_s) if reminder.is_due(100.0 + second)]


def test_a_wait_is_said_soon_and_then_every_minute() -> None:
    assert said_at(250) == [10, 20, 30, 40, 50, 60, 120, 180, 240]


def test_a_look_that_comes_late_says_it_once() -> None:
    reminder = Reminder(0.0)
    assert [reminder.is_due(now_s) for now_s in (35.0, 36.0, 44.9, 45.0)] == [
        True,
        False,
        False,
        True,
    ]
