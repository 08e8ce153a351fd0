"""An endpoint on loopback that no gateway is behind: an MQTT server like any other."""

from collections.abc import Iterator
from contextlib import contextmanager

from edgefl._native import MqttEndpoint


@contextmanager
def local_endpoint(port: int = 0, fleet: str = "elsewhere") -> Iterator[int]:
    """Serve plaintext MQTT; yields the port."""
    with counting_endpoint(port, fleet) as (_, listening):
        yield listening


@contextmanager
def counting_endpoint(
    port: int = 0, fleet: str = "elsewhere"
) -> Iterator[tuple[MqttEndpoint, int]]:
    """The same, for whoever looks at its counters too."""
    endpoint = MqttEndpoint(fleet, mqtt=f"127.0.0.1:{port}")
    try:
        yield endpoint, endpoint.start()["mqtt"]
    finally:
        endpoint.close()
