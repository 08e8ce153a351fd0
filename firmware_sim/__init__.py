"""Simulate a fleet in virtual time with the agent's own code."""
