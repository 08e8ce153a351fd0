"""The device's hello: said at each connection, and whenever what it tells has changed."""

import hashlib

from edgefl.agent.events import AgentEffect
from edgefl.agent.keys import AgentKeys
from edgefl.agent.outbox import Outbox
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.settings import AgentSettings
from edgefl.protocol.service_messages import Hello

_SLOT = "hello"


class Greeting:
    """Says hello until the gateway gives a receipt.

    Args:
        settings: Identity and version.
        keys: The device's key epochs.
        outbox: Where messages wait for their receipts.
        pen: Signs and addresses.
        post: Knows what the link passes.
    """

    def __init__(
        self, *, settings: AgentSettings, keys: AgentKeys, outbox: Outbox, pen: Pen, post: Post
    ) -> None:
        """Prepare; nothing was said yet."""
        self._settings = settings
        self._keys = keys
        self._outbox = outbox
        self._pen = pen
        self._post = post
        self._newest_digest: bytes | None = None
        self._backend = ""

    def say(self, now_s: float) -> list[AgentEffect]:
        """Say hello."""
        hello = Hello(
            identity_key=self._settings.identity.signing_key.public_key,
            agent_version=self._settings.agent_version,
            roster_number=self._keys.epoch.roster_number,
            key_epoch=self._keys.open_number,
            backend=self._backend,
            chunk_bytes=self._post.link_chunk_bytes,
        )
        greeting = self._pen.outside_of_rounds(hello)
        self._newest_digest = hashlib.sha256(greeting.payload).digest()
        return [self._outbox.put(_SLOT, greeting, now_s)]

    def tell_backend(self, backend: str, now_s: float) -> list[AgentEffect]:
        """Say hello again once it is known, or has changed, what this device trains with."""
        if not backend or backend == self._backend:
            return []
        self._backend = backend
        return self.say(now_s)

    def is_newest(self, digest: bytes) -> bool:
        """Tell whether a digest names the newest hello: anybody can say hello in this name."""
        return digest == self._newest_digest
