"""Cutting rows into windows: compared with a plain loop over all rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.account import Account
from edgefl.data.reading import LeftOut
from edgefl.data.settings import Columns, Layout, Retention, TargetRule, Windowing
from edgefl.data.windows import RowBlock, Windower
from edgefl.errors import ConfigError

TWO = Columns(time="t", channels=("a", "b"), label="k")
NOW_S = 1e9


def block(times_s, labels, gaps=None, values=None):
    count = len(labels)
    counted = np.arange(count * 2, dtype=np.float64).reshape(count, 2)
    return RowBlock(
        times_s=None if times_s is None else np.array(times_s, np.float64),
        values=counted if values is None else values,
        targets=np.array(labels),
        is_after_gap=np.array(gaps if gaps is not None else [False] * count, np.bool_),
    )


def cut(blocks, windowing, *, columns=TWO, retention=Retention(), now_s=NOW_S):  # noqa: B008 - frozen
    account = Account()
    windower = Windower(columns, windowing, retention, account, now_s)
    for one in blocks:
        windower.add(one)
    windower.end_run()
    return (*windower.store.finish(), account)


def plain(times_s, labels, gaps, windowing):
    """Return (start row, label) of each window, by the rules as docs/data.md states them."""
    runs, run = [], []
    for row, time_s in enumerate(times_s):
        step_s = time_s - times_s[row - 1] if row else 0.0
        limit_s = windowing.max_gap_s
        broken = step_s < 0 or (gaps[row] if limit_s is None else step_s > limit_s)
        if broken and run:
            runs.append(run)
            run = []
        run.append(row)
    runs.append(run)
    windows, lost = [], 0
    for run in runs:
        starts = range(0, len(run) - windowing.length + 1, windowing.stride)
        lost += 0 if starts else len(run)
        for start in starts:
            rows = run[start : start + windowing.length]
            found = [labels[row] for row in rows]
            label = found[-1]
            if windowing.target_rule is TargetRule.MAJORITY:
                label = max(found, key=lambda one: (found.count(one), found[::-1].index(one) * -1))
            if windowing.target_rule is TargetRule.WHOLE and len(set(found)) > 1:
                continue
            windows.append((rows[0], label))
    return windows, lost


@given(
    steps=st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, -2.0]), min_size=1, max_size=60),
    data=st.data(),
)
def test_windows_are_those_of_a_plain_loop_however_rows_arrive(steps, data):
    times_s = np.cumsum(steps).tolist()
    count = len(times_s)
    labels = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    gaps = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    windowing = Windowing(
        length=data.draw(st.integers(1, 6)),
        stride=data.draw(st.integers(1, 9)),
        max_gap_s=data.draw(st.sampled_from([None, 2.0])),
        target_rule=data.draw(
            st.sampled_from([TargetRule.MAJORITY, TargetRule.LAST, TargetRule.WHOLE])
        ),
    )
    cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=5)) | {0, count})
    whole = block(times_s, labels, gaps)
    x, y, spans_s, account = cut([whole.part(a, b) for a, b in itertools.pairwise(cuts)], windowing)
    expected, lost = plain(times_s, labels, gaps, windowing)
    assert [(int(one[0, 0]) // 2, int(label)) for one, label in zip(x, y, strict=True)] == expected
    assert account.left_out[LeftOut.SHORT_RUN] == lost
    for one, (start, end) in zip(x, spans_s, strict=True):
        row = int(one[0, 0]) // 2
        assert (start, end) == (times_s[row], times_s[row + windowing.length - 1])
        assert np.array_equal(one, whole.values[row : row + windowing.length])


@given(
    count=st.integers(0, 300),
    most=st.integers(1, 130),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=5),
)
def test_the_newest_windows_stay_in_order(count, most, sizes):
    whole = block(None, np.arange(count) % 7)
    edges = [0]
    while edges[-1] < count:
        edges.append(min(count, edges[-1] + sizes[len(edges) % len(sizes)]))
    x, y, _, account = cut(
        [whole.part(a, b) for a, b in itertools.pairwise(edges)],
        Windowing(length=1, stride=1),
        columns=Columns(channels=("a", "b"), label="k"),
        retention=Retention(most_windows=most),
    )
    kept = min(count, most)
    assert x[:, 0, 0].tolist() == [2 * row for row in range(count - kept, count)]
    assert y.tolist() == [row % 7 for row in range(count - kept, count)]
    assert account.left_out[LeftOut.TOO_MANY] == count - kept


def test_a_limit_of_bytes_counts_whole_windows():
    whole = block(None, np.zeros(100, int))
    x, *_ = cut(
        [whole],
        Windowing(length=5, stride=5),
        columns=Columns(channels=("a", "b"), label="k"),
        retention=Retention(most_bytes=3 * 5 * 2 * 4 + 39),
    )
    assert len(x) == 3
    with pytest.raises(ConfigError, match="E-DATA-CONFIG"):
        cut([whole], Windowing(length=5, stride=5), retention=Retention(most_bytes=39))


def test_old_windows_are_left_out_by_their_end():
    day_s = 86_400.0
    times_s = [NOW_S - 3 * day_s, NOW_S - 2.5 * day_s, NOW_S - 2 * day_s, NOW_S - 1 * day_s]
    x, _, _, account = cut(
        [block(times_s, [0, 0, 1, 1])],
        Windowing(length=2, stride=2),
        retention=Retention(most_age_days=1.5),
    )
    assert x[:, 0, 0].tolist() == [4.0]
    assert account.left_out[LeftOut.TOO_OLD] == 1


def test_a_clock_that_was_set_back_is_counted_and_breaks_the_window():
    _, _, _, account = cut(
        [block([10, 11, 5, 6], [0] * 4), block([1, 2], [0, 0])], Windowing(length=3, stride=3)
    )
    assert account.clock_steps == 2
    assert account.left_out[LeftOut.SHORT_RUN] == 6


@pytest.mark.parametrize(
    ("layout", "shape", "expected"),
    [
        (Layout.TIME_FIRST, (), [[0, 1], [2, 3], [4, 5]]),
        (Layout.CHANNEL_FIRST, (), [[0, 2, 4], [1, 3, 5]]),
        (Layout.FLAT, (), [0, 1, 2, 3, 4, 5]),
        (Layout.CHANNEL_FIRST, (2, 1, 3), [[[0, 2, 4]], [[1, 3, 5]]]),
    ],
)
def test_layouts(layout, shape, expected):
    x, *_ = cut(
        [block([0, 1, 2], [0, 0, 0])], Windowing(length=3, stride=3, layout=layout, shape=shape)
    )
    assert x[0].tolist() == expected
    assert x.dtype == np.float32


def test_target_values_are_the_last_rows_or_their_mean():
    columns = Columns(channels=("a", "b"), targets=("p", "q"))
    rows = RowBlock(
        times_s=None,
        values=np.zeros((4, 2)),
        targets=np.array([[1.0, 10.0], [3.0, 30.0], [5.0, 0.0], [7.0, 1.0]]),
        is_after_gap=np.zeros(4, np.bool_),
    )
    for rule, expected in (
        (TargetRule.LAST, [[3, 30], [7, 1]]),
        (TargetRule.MEAN, [[2, 20], [6, 0.5]]),
    ):
        windowing = Windowing(length=2, stride=2, target_rule=rule)
        _, y, _, _ = cut([rows], windowing, columns=columns)
        assert y.dtype == np.float32
        assert y.tolist() == expected


def test_whole_numbers_stay_exact():
    large = 2.0**52 + 1
    x, *_ = cut(
        [block([0], [0], values=np.array([[large, 3.0]]))],
        Windowing(length=1, stride=1, is_tokens=True),
    )
    assert x.dtype == np.int64
    assert x.tolist() == [[[int(large), 3]]]
