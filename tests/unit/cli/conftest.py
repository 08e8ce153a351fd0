"""Fixtures for tests of the command line."""

from tests.command import run  # noqa: F401 - a fixture
