"""Decide whether a device that says hello may take part."""

from broker.population import Population
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.messages import Hello, Rejection


def admit(
    device: str, hello: Hello, population: Population, least_agent_version: str
) -> Rejection | bool:
    """Pin the key of a device at its first hello.

    Returns:
        A rejection that says what to do, or whether the device is new.
    """
    if _version(hello.agent_version) < _version(least_agent_version):
        text = f"agent {hello.agent_version} too old, need {least_agent_version}: update the agent"
        return Rejection(code="E-AGENT-OLD", text=text)
    try:
        return population.pin(device, hello.identity_key)
    except RemoteProtocolError as error:
        return Rejection(code=error.code, text=f"{error.found}: {error.advice}")


def _version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; whatever is no number counts as 0."""
    parts = text.split("+")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in parts)
