"""Clipping, the noise plan, accounting and ledger arithmetic: pure functions and values."""
