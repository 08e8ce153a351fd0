"""The agent's roster and key epochs: kept on flash, and carried between machine and gateway."""

from collections.abc import Collection, Iterable, Mapping

from edgefl.agent.events import AgentEffect, KeysReady, Noticed
from edgefl.agent.outbox import Outbox
from edgefl.errors import StorageError, WireError
from edgefl.protocol import topics
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.epoch_events import (
    DeviceEpochEffect,
    EpochRefused,
    PersistEpoch,
    PublishBundle,
    SendEpochUp,
)
from edgefl.protocol.epoch_messages import EpochAggregatorMessage
from edgefl.protocol.identity import DeviceIdentity, EntropySource
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AdversaryClass, Prg
from edgefl.storage.base import KeyValueStore
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId, FleetName

_STATE = "key-epochs"
_BUNDLE = "epoch bundle"
_NONCE = "epoch nonce"


class AgentKeys:
    """Drives one `DeviceEpoch`.

    Args:
        store: Durable state.
        entropy: Fresh secrets.
        outbox: Where messages wait for their receipts.
        identity: The device.
        fleet: The fleet's name.
        policy: The device's floors.
        has_aes: This processor has AES instructions.
        enrolment_key: Who signs the roster; None pins the first one that is heard.

    Raises:
        StorageError: The stored state is damaged.
        LocalProtocolError: E-ENROLMENT-KEY, the device has pinned another one.
    """

    def __init__(
        self,
        *,
        store: KeyValueStore,
        entropy: EntropySource,
        outbox: Outbox,
        identity: DeviceIdentity,
        fleet: FleetName,
        policy: DevicePolicy,
        has_aes: bool,
        enrolment_key: bytes | None,
    ) -> None:
        """Go on from flash."""
        self._store = store
        self._outbox = outbox
        self._identity = identity
        self._fleet = fleet
        uses_aes = has_aes and Prg.AES_128_CTR in policy.prgs
        try:
            self.epoch = DeviceEpoch(
                identity=identity,
                entropy=entropy,
                fleet=fleet,
                prgs=prg_bitmask(*([Prg.AES_128_CTR] if uses_aes else [])),
                enrolment_key=enrolment_key,
                limits_grinding=policy.adversary_classes == {AdversaryClass.MALICIOUS},
                snapshot=store.get(_STATE),
            )
        except WireError as error:
            raise StorageError(
                "E-STATE-DAMAGED",
                "readable key epochs in this device's state",
                error.found,
                "begin anew with --reset-state, and have the device enrolled again",
            ) from error

    @property
    def open_number(self) -> int:
        """Number of the open key epoch; 0 for none."""
        opened = self.epoch.open_epoch
        return 0 if opened is None else opened.key_epoch

    def handle(
        self, message: EpochAggregatorMessage, now_s: float, wall_s: float
    ) -> list[AgentEffect]:
        """Take a message of the gateway, whose signature was checked."""
        return self._carry_out(self.epoch.handle(message, wall_s), now_s)

    def resume(self, now_s: float) -> list[AgentEffect]:
        """Send again what an open set-up needs from this device."""
        return self._carry_out(self.epoch.resume(), now_s)

    def persist(self, effect: PersistEpoch) -> None:
        """Write the state durably; the secrets that it no longer holds are gone with it."""
        self._store.put(_STATE, effect.snapshot)

    def release(self, index: int, *, key_epoch: int) -> Mapping[str, bytes]:
        """Destroy the secret of a key index whose call is over for this device.

        Returns:
            What the store must take, in the transaction that deletes the record of the round:
            without the record no restart needs the secret, and the deletion cuts the log in which
            older versions are.
        """
        return _changes_of(self.epoch.release_index(index, key_epoch=key_epoch))

    def release_all_but(self, kept: Collection[int]) -> Mapping[str, bytes]:
        """Destroy after a restart the secrets of all key indices in use but `kept`.

        Returns:
            As of `release`; nothing where no secret was left over.
        """
        return _changes_of(self.epoch.release_all_but(kept))

    def _carry_out(self, effects: Iterable[DeviceEpochEffect], now_s: float) -> list[AgentEffect]:
        out: list[AgentEffect] = []
        for effect in effects:
            if isinstance(effect, PersistEpoch):
                self.persist(effect)
            elif isinstance(effect, PublishBundle):
                topic = topics.key_bundle(self._fleet, self._device)
                out.append(self._outbox.put(_BUNDLE, self._sealed(topic, effect), now_s))
            elif isinstance(effect, SendEpochUp):
                self._outbox.drop(_BUNDLE)
                topic = topics.uplink(self._fleet, self._device)
                out.append(self._outbox.put(_NONCE, self._sealed(topic, effect), now_s))
            elif isinstance(effect, EpochRefused):
                out.append(Noticed(error=effect.error))
            else:
                self._outbox.drop(_NONCE)
                out.append(KeysReady(key_epoch=effect.epoch.key_epoch, members=effect.epoch.size))
        return out

    @property
    def _device(self) -> DeviceId:
        return DeviceId(self._identity.device)

    def _sealed(self, topic: str, effect: PublishBundle | SendEpochUp) -> Publish:
        header = Header(sender=self._device)
        payload = seal_envelope(self._identity.signing_key, topic, header, effect.message)
        return Publish(topic=topic, payload=payload, retain=isinstance(effect, PublishBundle))


def _changes_of(effects: Iterable[DeviceEpochEffect]) -> dict[str, bytes]:
    changes = {}
    for effect in effects:
        if isinstance(effect, PersistEpoch):
            changes[_STATE] = effect.snapshot
    return changes
