"""`edgefl secagg sizes`: the figures are those of the sizes, and impossible cohorts are refused."""

import json

import pytest

_MALICIOUS = ("--adversary", "malicious", "--corrupt", 0.1, "--drop", 0.1)


def test_sizes_of_a_malicious_class(run) -> None:
    shown = run("secagg", "sizes", "--cohort", 1000, *_MALICIOUS)

    assert shown.code == 0
    lines = [line.split() for line in shown.out.splitlines()[1:]]
    assert {line[0]: line[1] for line in lines} == {
        "degree": "96",
        "threshold": "67",
        "window": "27",
        "committee": "49",
        "shares": "11520",
    }
    assert max(len(line) for line in shown.out.splitlines()) <= 100


def test_sizes_as_json(run) -> None:
    shown = run("secagg", "sizes", "--cohort", 1000, *_MALICIOUS, "--json")

    assert json.loads(shown.out) == {
        "cohort": 1000,
        "corrupt": 100,
        "dropped": 100,
        "adversary": "malicious",
        "grinding_bits": 0,
        "degree": 96,
        "complete": False,
        "threshold": 67,
        "committee": {"members": 69, "threshold": 49},
        "window": {"positions": 48, "alive": 27},
        "shares_size_bytes": 11_520,
    }


@pytest.mark.parametrize("adversary", ["honest-but-curious", "semi-malicious"])
def test_weaker_classes_have_neither_committee_nor_window(run, adversary: str) -> None:
    words = ("secagg", "sizes", "--cohort", 1000, "--adversary", adversary)
    facts = json.loads(run(*words, "--json").out)
    assert facts["committee"] is None
    assert facts["window"] is None
    assert "certif" not in run(*words).out


def test_grinding_counts(run) -> None:
    words = ("secagg", "sizes", "--cohort", 1000, *_MALICIOUS, "--json")
    assert (
        json.loads(run(*words, "--grinding-bits", 8).out)["degree"]
        > json.loads(run(*words).out)["degree"]
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--cohort", 2), "E-SIZES-COHORT"),
        (("--cohort", 100, "--corrupt", 1), "E-SIZES-FRACTION"),
        (("--cohort", 100, "--drop", "nan"), "E-SIZES-FRACTION"),
        (("--cohort", 10, "--adversary", "malicious", "--drop", 0.5), "E-SIZES-IMPOSSIBLE"),
        (("--cohort", 100, "--grinding-bits", 65), "E-SIZES-GRINDING"),
    ],
)
def test_refused(run, words: tuple[object, ...], code: str) -> None:
    refused = run("secagg", "sizes", *words)
    assert refused.code == 2
    assert refused.out == ""
    assert code in refused.err
