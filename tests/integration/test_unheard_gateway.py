"""A device whose link stands, and which hears of no gateway, asks for the retained status again."""

from pathlib import Path

from tests.integration.local_endpoint import counting_endpoint
from tests.integration.real import Process, agent_words, wait_until


def test_it_connects_anew(tmp_path: Path) -> None:
    with counting_endpoint(fleet="fleet") as (endpoint, port):
        words = agent_words(tmp_path / "d1", port, "--ignore-power")
        agent = Process(tmp_path / "output", *words)
        try:
            wait_until(lambda: endpoint.stats()["accepted"] >= 2, "a second connection")
            assert agent.is_running
        finally:
            agent.stop()
    assert "connected to mqtt://127.0.0.1" in agent.err
