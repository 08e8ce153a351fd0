"""The scripts behind the goals table: what they read of others' output, and how they judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.peers import openssl
from tests.benchmarks.secagg.abuse_rows import parse_outcomes
from tests.benchmarks.secagg.results import at_least, at_most, compare, reaches, table, to_json
from tests.benchmarks.secagg.turns import ROOT, PeerError, PeerProcess, take_turns


def test_the_figure_of_openssl_is_read() -> None:
    output = (
        "version: 3.0.19\n"
        "The 'numbers' are in 1000s of bytes per second processed.\n"
        "type          16384 bytes\n"
        "AES-128-CTR    7015379.48k\n"
    )
    assert openssl.parse_speed(output) == pytest.approx(7.01537948)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "AES-128-CTR\n",
        "AES-256-CTR    7015379.48k\n",
        "AES-128-CTR    701.48k   7015379.48k\n",
    ],
)
def test_other_output_of_openssl_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match="AES-128-CTR"):
        openssl.parse_speed(output)


def test_ratios_are_taken_within_a_turn() -> None:
    result = compare(
        "row", "case", "s", own=[1.0, 10.0, 2.0], peer=[8.0, 30.0, 14.0], bar=at_least(7)
    )
    assert (result.own, result.peer) == (2.0, 14.0)
    assert (result.ratio, result.lowest_ratio) == (7.0, 3.0)
    assert result.bar_is_met is True


def test_where_more_is_better_the_ratio_turns_round() -> None:
    result = compare("row", "case", "GB/s", own=[6.0], peer=[8.0], more_is_better=True)
    assert result.ratio == 0.75


def test_a_goal_beside_a_peer_is_open_without_it() -> None:
    result = compare("row", "case", "s", own=[1.0], bar=at_least(2), stretch=at_most(0.5))
    assert (result.bar_is_met, result.stretch_is_met) == (None, False)


def test_bounds_of_our_own_are_judged_by_our_figure() -> None:
    result = compare("row", "case", "bytes", own=[2.5], bar=at_most(2.5), stretch=reaches(2.6))
    assert (result.bar_is_met, result.stretch_is_met) == (True, False)


def test_the_table_and_the_file_say_what_was_missed() -> None:
    result = compare("row", "case", "s", own=[1.0], peer=[3.0], bar=at_least(4), peer_name="P")
    assert "ratio >= 4, missed" in table([result])
    (row,) = json.loads(to_json([result], {"flwr": "1"}))["results"]
    assert (row["bar"], row["bar_is_met"], row["ratio"]) == ("ratio >= 4", False, 3.0)


def test_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str, figure: float) -> float:
        order.append(name)
        return figure

    figures = take_turns({"a": lambda: side("a", 1.0), "b": lambda: side("b", 2.0)}, 2)
    assert order == ["a", "b", "a", "b"]
    assert figures == {"a": [1.0, 1.0], "b": [2.0, 2.0]}


_PEER = '''"""A peer that prints on its own account."""
from tests.benchmarks.peers.json_lines import serve

def double(request):
    print("not an answer")
    return {"cpu_s": 2 * request["number"]}

serve({"double": double})
'''


def test_a_peer_answers_one_request_at_a_time(tmp_path: Path) -> None:
    script = tmp_path / "peer"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "$(cat {tmp_path}/code)"\n')
    (tmp_path / "code").write_text(_PEER)
    script.chmod(0o700)
    with PeerProcess(str(script), "ignored") as peer:
        assert peer.figure("double", number=21) == 42.0
        with pytest.raises(PeerError, match="KeyError"):
            peer.ask("double")
        with pytest.raises(PeerError, match="no operation 'halve'"):
            peer.ask("halve")
        assert peer.figure("double", number=1) == 2.0


def test_tests_are_counted_by_the_defence_that_they_try() -> None:
    output = (
        "tests/unit/a.py::TestDefence3Bound::test_one[x y] PASSED [ 10%]\n"
        "tests/unit/a.py::TestDefence3Bound::test_two PASSED [ 20%]\n"
        "tests/unit/b.py::TestDefence12TwoViews::test_one FAILED [ 30%]\n"
        "tests/unit/b.py::TestDefence12TwoViews::test_two PASSED [ 40%]\n"
        "tests/unit/b.py::TestDefence7Kinds::test_three ERROR [ 50%]\n"
        "tests/unit/b.py::TestOther::test_three PASSED [ 60%]\n"
        "ERROR tests/unit/b.py::TestDefence7Kinds::test_three\n"
    )
    assert parse_outcomes(output) == ({3: 2, 12: 1}, {12: 1, 7: 1})


def test_all_rows_run_small_and_alone(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    finished = subprocess.run(
        # Without "abuse", which runs tests that run anyway.
        f"{sys.executable} -m tests.benchmarks.secagg.goals --quick --json {figures}"
        " --rows masks client server shamir bytes drops".split(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads(figures.read_text())["results"]
    rows = {result["row"].split(",")[0] for result in results}
    assert rows == {
        "Shamir",
        "bytes per device",
        "gateway",
        "gateway memory",
        "key epoch",
        "masks beside Flower",
        "server unmask",
        "shares for one neighbour",
        "stages at which one drop is survived",
        "sum exactness",
        "upload",
        "uplinks after check-in",
        "whole client",
    }
    assert all(result["peer"] is None for result in results)
    judged = [result for result in results if result["bar_is_met"] is not None]
    assert len(judged) >= 8
    assert all(result["bar_is_met"] for result in judged)
