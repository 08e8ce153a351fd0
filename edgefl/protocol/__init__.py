"""Rounds as pure state machines: messages, plan, device half and aggregator half."""
