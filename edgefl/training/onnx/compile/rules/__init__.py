"""Gradient rules, one file per family of operators."""
