"""An endpoint on loopback that no gateway is behind: an MQTT server like any other."""

from collections.abc import Iterator
from contextlib import contextmanager

from edgefl._native import MqttEndpoint


@contextmanager
def local_endpoint(port: int = 0, fleet: str = "elsewhere") -> Iterator[int]:
    """Serve plaintext MQTT; yields the port."""
    endpoint = MqttEndpoint(fleet, mqtt=f"127.0.0.1:{port}")
    try:
        yield endpoint.start()["mqtt"]
    finally:
        endpoint.close()
