"""Decide whether a device that says hello may take part."""

from broker.enrolment import Enrolment
from broker.population import Population
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.service_messages import Hello, Rejection


def admit(
    device: str,
    hello: Hello,
    digest: bytes,
    population: Population,
    enrolment: Enrolment,
    least_agent_version: str,
) -> Rejection | bool:
    """Pin the key of a device at its first hello.

    Args:
        device: The name that says hello.
        hello: What it says.
        digest: SHA-256 of the payload, which a rejection names.
        population: The known devices.
        enrolment: Who is in the roster.
        least_agent_version: Older agents are refused.

    Returns:
        A rejection that says what to do, or whether the device is new.
    """
    if _version(hello.agent_version) < _version(least_agent_version):
        text = f"agent {hello.agent_version} too old, need {least_agent_version}: update the agent"
        return Rejection(code="E-AGENT-OLD", text=text, digest=digest)
    try:
        return population.pin(
            device,
            hello.identity_key,
            is_vouched_for=enrolment.vouches(device, hello.identity_key),
        )
    except RemoteProtocolError as error:
        text = f"{error.found}: {error.advice}"
        return Rejection(code=error.code, text=text, digest=digest)


def _version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; whatever is no number counts as 0."""
    parts = text.split("+")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in parts)
