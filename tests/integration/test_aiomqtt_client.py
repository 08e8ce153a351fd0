"""aiomqtt, a client as its users write it, at the endpoint: 3.1.1 and 5, with and without TLS."""

import asyncio
import os
import uuid
from collections.abc import Iterator

import aiomqtt
import pytest

from tests.integration.endpoint_lab import FLEET, PATIENCE_S, Lab, context_of, is_tls, lab

LARGE_BYTES = 122_885  # the largest chunk packet


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("endpoint")) as running:
        yield running


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("listener", ["mqtt", "mqtts", "wss"])
def test_aiomqtt_talks_to_the_gateway(served: Lab, listener: str, version: str) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    payload = os.urandom(LARGE_BYTES)
    own = f"efl/1/{FLEET}/d/{name}"
    has_tls = is_tls(listener)
    options = {"transport": "websockets", "websocket_path": "/mqtt"} if listener == "wss" else {}

    async def run() -> list[tuple[str, bytes, int]]:
        heard = []
        async with aiomqtt.Client(
            "127.0.0.1",
            served.ports[listener],
            identifier=name if has_tls else f"edgefl-{FLEET}-{name}",
            protocol=aiomqtt.ProtocolVersion.V5 if version == "5" else aiomqtt.ProtocolVersion.V311,
            tls_context=context_of(served, name) if has_tls else None,
            will=aiomqtt.Will(f"{own}/st", b"offline", qos=1, retain=True),
            timeout=PATIENCE_S,
            **options,
        ) as client:
            await client.subscribe(f"{own}/c", qos=1)
            for content in (payload, b"a second one"):
                await client.publish(f"{own}/q", content, qos=1)
            async with asyncio.timeout(PATIENCE_S):
                async for message in client.messages:
                    heard.append((str(message.topic), bytes(message.payload), message.qos))
                    if len(heard) == 2:
                        return heard
        return heard

    assert asyncio.run(run()) == [(f"{own}/c", payload, 1), (f"{own}/c", b"a second one", 1)]
    ended = served.wait_for(
        lambda event: (
            event.kind == "disconnected" and name in (event.identity or event.client_id or "")
        ),
        "the end",
    )
    assert ended.reason == "normal"
