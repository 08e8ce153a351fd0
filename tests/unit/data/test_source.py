"""How sources are spelled."""

import os

import numpy as np
import pytest

from edgefl.data import load_spar
from edgefl.data.source import load_source, open_source
from tests.unit.data.recordings import refusal, rows, write_csv


def test_the_shipped_recordings_by_person_and_arm():
    source = open_source("spar:1-left")
    assert source.name == "spar:1-left"
    data = source.read()
    spar = load_spar()
    assert data.examples == ((spar.person == 1) & (spar.arm == 0)).sum()
    assert np.array_equal(load_source("spar:1-left").x, data.x)
    assert source.examine().class_names[0] == "PEN"


@pytest.mark.parametrize("text", ["spar:", "spar:1", "spar:x-left", "spar:1-middle"])
def test_other_spellings_of_it_are_refused(text):
    assert refusal(lambda: open_source(text)).code == "E-DATA-SOURCE"


def test_a_person_who_is_not_there_is_refused_when_read():
    assert refusal(open_source("spar:11-left").read).code == "E-DATA-PERSON"


@pytest.mark.parametrize("text", ["", "log", "log.txt", "log.db", "log.db:", "a b:c", "x:y:z/"])
def test_what_is_no_source_is_refused_with_all_spellings(text):
    error = refusal(lambda: open_source(text))
    assert error.code == "E-DATA-SOURCE"
    assert ".toml" in error.expected


def test_a_folder_goes_by_what_is_in_it(tmp_path):
    assert "neither" in str(refusal(lambda: open_source(str(tmp_path))))
    write_csv(tmp_path / "1.csv", *rows(2), header="time_s,a,b,label")
    assert type(open_source(str(tmp_path))).__name__ == "RowSource"
    np.savez(tmp_path / "1.npz", x=np.ones((1, 2)), y=[0])
    assert "both" in str(refusal(lambda: open_source(str(tmp_path))))
    (tmp_path / "1.csv").unlink()
    assert open_source(str(tmp_path)).read().examples == 1


def test_a_file_may_appear_after_the_source_is_opened(tmp_path):
    source = open_source(str(tmp_path / "later.npz"))
    assert refusal(source.read).code == "E-DATA-MISSING"
    np.savez(tmp_path / "later.npz", x=np.ones((1, 2)), y=[0])
    assert source.read().examples == 1


def test_a_pipe_is_no_file(tmp_path):
    for name in ("log.csv", "log.npz", "log.db"):
        os.mkfifo(tmp_path / name)
        spelling = f"{tmp_path / name}:t" if name == "log.db" else str(tmp_path / name)
        assert refusal(open_source(spelling).examine).code == "E-DATA-UNREADABLE"
