"""Reasons that only the past reveals: an id used twice, one message that kills the link."""

import logging

from edgefl.transport.base import LinkDown, LinkDownReason
from edgefl.transport.mqtt_history import LinkHistory

LOST = LinkDown(reason=LinkDownReason.LOST)
UNREACHABLE = LinkDown(reason=LinkDownReason.UNREACHABLE)
SILENT = LinkDown(reason=LinkDownReason.SILENT)


def history() -> LinkHistory:
    return LinkHistory(started_at=0.0)


def reasons(
    past: LinkHistory,
    downs: list[tuple[LinkDown, float | None, float, int]],
    *,
    had_session: bool = True,
) -> list[LinkDownReason]:
    return [
        past.record(
            down, ready_at=ready_at, had_session=had_session, now=now, blame_count=blame
        ).reason
        for down, ready_at, now, blame in downs
    ]


def test_three_short_links_mean_a_second_process_with_the_id():
    past = history()
    downs = [(LOST, float(k), k + 0.5, 0) for k in range(3)]
    assert reasons(past, downs) == [LinkDownReason.LOST] * 2 + [LinkDownReason.TAKEN_OVER]


def test_a_broker_that_forgot_the_session_was_restarted():
    past = history()
    downs = [(LOST, float(k), k + 0.5, 0) for k in range(5)]
    assert set(reasons(past, downs, had_session=False)) == {LinkDownReason.LOST}


def test_a_refused_connection_between_means_a_broker_that_restarts():
    past = history()
    downs = [
        (LOST, 0.0, 0.5, 0),
        (LOST, 1.0, 1.5, 0),
        (UNREACHABLE, None, 2.0, 0),
        (LOST, 3.0, 3.5, 0),
    ]
    assert LinkDownReason.TAKEN_OVER not in reasons(past, downs)


def test_long_links_are_stable_and_never_taken_over():
    past = history()
    downs = [(LOST, 100.0 * k, 100.0 * k + 60, 0) for k in range(5)]
    assert set(reasons(past, downs)) == {LinkDownReason.LOST}
    assert past.was_stable


def test_the_same_message_three_times_is_blamed():
    past = history()
    downs = [(LOST, float(k), k + 0.5, k + 1) for k in range(3)]
    assert reasons(past, downs)[-1] is LinkDownReason.MESSAGE_REFUSED


def test_only_the_first_failure_of_a_row_is_news():
    past = history()
    news = []
    for k in range(3):
        past.record(UNREACHABLE, ready_at=None, had_session=False, now=float(k), blame_count=0)
        news.append(past.is_news)
    past.record(LOST, ready_at=5.0, had_session=False, now=20.0, blame_count=0)
    news.append(past.is_news)
    assert news == [True, False, False, True]


def test_addresses_that_fail_in_turn_each_for_its_reason_are_told_once() -> None:
    past = history()
    news = []
    tls = LinkDown(reason=LinkDownReason.TLS, detail="time: the clock says 2100")
    for k in range(6):
        down = UNREACHABLE if k % 2 else tls
        past.record(down, ready_at=None, had_session=False, now=float(k), blame_count=0)
        news.append(past.is_news)
    assert news == [True, True, False, False, False, False]


def test_another_refusal_is_told_and_endless_ones_are_not() -> None:
    past = history()
    told = []
    for words in ("busy", "busy", "revoked", *(f"word {k}" for k in range(100))):
        down = LinkDown(reason=LinkDownReason.REFUSED, detail=words)
        past.record(down, ready_at=None, had_session=False, now=1.0, blame_count=0)
        told.append(past.is_news)
    assert told[:3] == [True, False, True]
    assert sum(told) == 16


def reminders(caplog, seconds: range) -> list[str]:
    past = history()
    with caplog.at_level(logging.WARNING):
        for second in seconds:
            past.record(
                UNREACHABLE, ready_at=None, had_session=False, now=float(second), blame_count=0
            )
            past.remind(float(second), waiting_for="mqtt://127.0.0.1:1883")
    return [record.getMessage() for record in caplog.records]


def test_the_log_says_every_ten_seconds_what_is_waited_for(caplog):
    lines = reminders(caplog, range(45))
    assert len(lines) == 4
    assert "mqtt://127.0.0.1:1883 for 10 s" in lines[0]
    assert "unreachable" in lines[0]


def test_a_board_without_network_for_a_day_logs_little(caplog):
    lines = reminders(caplog, range(0, 86_400, 2))
    assert 180 < len(lines) < 220  # 60 in the first ten minutes, then six an hour


def test_silence_without_end_is_no_broker():
    downs = [(SILENT, None, float(k), 0) for k in range(4)]
    assert reasons(history(), downs) == [LinkDownReason.SILENT] * 2 + [LinkDownReason.NOT_MQTT] * 2


def test_a_broker_that_has_answered_once_may_be_silent_for_long():
    downs = [(LOST, 0.0, 0.5, 0), *((SILENT, None, float(k), 0) for k in range(1, 9))]
    assert LinkDownReason.NOT_MQTT not in reasons(history(), downs)
