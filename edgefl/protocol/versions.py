"""Which agents and gateways understand each other: the minor version of the protocol.

The major version stands in every envelope and topic. The minor one grows when a message that both
ends need is added or changes its meaning; fields that may be missing do not count.
"""

MINOR = 1
"""1: large messages travel as transfers, which both ends must speak."""
LEAST_AGENT_MINOR = 1
"""Oldest agents that this gateway can serve."""
LEAST_GATEWAY_MINOR = 1
"""Oldest gateways that this agent can work with."""
MOST_MINOR = 2**16


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; whatever is no number counts as 0."""
    parts = text.split("+")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in parts)
