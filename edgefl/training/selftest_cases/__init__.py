"""Data files of `edgefl.training.selftest`; made by scripts/make_selftest.py."""
