"""A training that hangs is told from a slow one by its round, which is over."""

from edgefl.agent.overdue import LONGEST_S, UNWANTED_S, OverdueJobs


def test_a_job_hangs_an_hour_after_its_round_and_not_before() -> None:
    jobs = OverdueJobs()
    jobs.begins("training", 0.0)
    assert not jobs.hangs(5 * UNWANTED_S), "slow, but waited for"
    jobs.round_is_over(5 * UNWANTED_S)
    jobs.round_is_over(5.5 * UNWANTED_S)
    assert not jobs.hangs(6 * UNWANTED_S - 1)
    assert jobs.hangs(6 * UNWANTED_S), "later rounds give it no more time"
    jobs.ends("training")
    assert not jobs.hangs(6 * UNWANTED_S)


def test_a_job_hangs_after_a_day_where_no_round_ever_ends() -> None:
    jobs = OverdueJobs()
    jobs.begins("training", 0.0)
    assert not jobs.hangs(LONGEST_S - 1)
    assert jobs.hangs(LONGEST_S)


def test_the_next_rounds_job_has_its_own_time() -> None:
    jobs = OverdueJobs()
    jobs.begins("first", 0.0)
    jobs.round_is_over(0.0)
    jobs.ends("first")
    jobs.begins("second", 10.0)
    assert not jobs.hangs(UNWANTED_S + 1)
