"""Fixtures for tests that start real commands."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from tests.command import run  # noqa: F401 - a fixture
from tests.integration.real import Process


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Give a function that starts processes; all are gone after the test."""
    started: list[Process] = []

    def call(*words: object, before: Callable[[], None] | None = None) -> Process:
        started.append(Process(tmp_path / "output", *words, before=before))
        return started[-1]

    yield call
    for process in started:
        process.stop()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "spar.efl"
    path.write_bytes(compile_bundle(demo_model(1)).bundle_bytes)
    return path
