"""Decide whether a device that says hello may take part."""

from broker.enrolment import Enrolment
from broker.population import Population
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.service_messages import Hello, Rejection
from edgefl.protocol.versions import LEAST_AGENT_MINOR, parse_version


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
    is_old = parse_version(hello.agent_version) < parse_version(least_agent_version)
    if is_old or hello.protocol_minor < LEAST_AGENT_MINOR:
        text = (
            f"agent {hello.agent_version} too old, need {least_agent_version}: on the board run "
            "'pip install --upgrade edgefl-runtime' and start the agent again"
        )
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
