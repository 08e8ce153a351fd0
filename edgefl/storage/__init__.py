"""Crash-safe state: the interface, SQLite, and a dictionary for tests."""
