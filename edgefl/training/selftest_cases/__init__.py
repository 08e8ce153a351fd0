"""Data files of `edgefl.training.selftest`; made by tests/vectors/make_selftest.py."""
