"""An agent whose stored key epochs cannot be read says what to do, and invents nothing."""

import pytest

from edgefl._native import Seed, SigningKey
from edgefl.errors import StorageError
from edgefl.storage.memory import MemoryStore
from tests.unit.agent.test_forged import start_agent


@pytest.mark.parametrize("stored", [b"", b"\xff", b"\xa0", b"\x81" * 5000, b"\x9b" + b"\xff" * 8])
def test_damaged_key_epochs_are_named(stored: bytes) -> None:
    store = MemoryStore()
    store.put("key-epochs", stored)
    with pytest.raises(StorageError, match="--reset-state") as caught:
        start_agent(SigningKey.from_seed(Seed.generate()), store)
    assert caught.value.code == "E-STATE-DAMAGED"
    assert store.get("key-epochs") == stored
