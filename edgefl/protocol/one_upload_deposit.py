"""The device's half of a deposit outside of a round: a pure machine, as small as its task.

The first deposit of a key epoch is such a one, and the one after a round in which the device was
silent. Rules: one deposit per index, ever; the index is marked as used on flash before the bytes
are written, and they are written before they leave. Power that fails in between costs the index.
"""

from edgefl.errors import ConfigError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import DeviceEffect, Persist, SendUp
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.limits import DIGEST_BYTES, MAX_KEY_EPOCH
from edgefl.protocol.one_upload_messages import Deposit, DepositCall
from edgefl.protocol.one_upload_plan import OwnerTerms, accept_deposit_call
from edgefl.protocol.one_upload_session import make_deposit
from edgefl.protocol.one_upload_sizes import deposit_id_of
from edgefl.protocol.policy import DevicePolicy

SNAPSHOT_VERSION = 1


class OneUploadDeposit:
    """One deposit; made by `answer` or `restore`. It is over when the gateway gives a receipt.

    Args:
        epoch: The device's key epochs, in which the index is reserved already.
        key_epoch: Of the deposit.
        deposit_id: What the index is reserved for.
        message: What is sent.
    """

    def __init__(
        self, *, epoch: DeviceEpoch, key_epoch: int, deposit_id: bytes, message: Deposit
    ) -> None:
        """Take the message. Nothing is sent before `begin` or `resume`."""
        self._epoch = epoch
        self.key_epoch = key_epoch
        self._deposit_id = deposit_id
        self.message = message

    @classmethod
    def answer(
        cls,
        call: DepositCall,
        *,
        policy: DevicePolicy,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        gateway_key: bytes,
        today: int = 0,
    ) -> "OneUploadDeposit":
        """Answer a call; the index that it names serves one one-upload session and nothing else.

        Args:
            call: The call.
            policy: The owner's floors.
            entropy: Fresh secrets.
            epoch: The device's roster and key epochs.
            gateway_key: Identity key of the gateway, as pinned.
            today: Days since 1970-01-01; 0 where the device does not know the date.

        Raises:
            RemoteProtocolError: The call is refused (`one_upload_plan.accept_deposit_call`).
                Nothing is to be sent.
        """
        if not epoch.is_ready:
            raise RemoteProtocolError("E-CALL-EPOCH", "a call in an open key epoch", "none is open")
        keys = epoch.keys
        terms = OwnerTerms(
            policy=policy, gateway_enrols=epoch.enrolment_key == gateway_key, today=today
        )
        try:
            committee, holders = accept_deposit_call(call, terms, keys)
        except ConfigError as error:
            raise RemoteProtocolError(error.code, error.expected, error.found) from error
        deposit_id = deposit_id_of(keys.open_epoch, call.key_index, call.terms)
        epoch.reserve_index(call.key_index, deposit_id)
        message = make_deposit(keys, call.key_index, committee, holders, entropy.fresh_seed())
        return cls(epoch=epoch, key_epoch=call.key_epoch, deposit_id=deposit_id, message=message)

    @classmethod
    def restore(cls, snapshot: bytes, *, epoch: DeviceEpoch) -> "OneUploadDeposit":
        """Rebuild a deposit from its snapshot.

        Raises:
            WireError: The snapshot is damaged, or not of the open key epoch: it can be wiped.
        """
        parts = wire.as_list(wire.decode(snapshot), 4)
        if len(parts) != 4:
            raise WireError("E-SNAPSHOT", "an array of 4", f"{len(parts)} parts")
        wire.as_int(parts[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        key_epoch = wire.as_int(parts[1], 1, MAX_KEY_EPOCH)
        deposit_id = wire.as_bytes(parts[2], DIGEST_BYTES)
        message = Deposit.from_body(wire.as_body(parts[3]))
        if not epoch.is_ready or epoch.keys.open_epoch.key_epoch != key_epoch:
            raise WireError("E-SNAPSHOT", "a deposit in the open key epoch", "another one")
        use = epoch.keys.use_of(message.key_index)
        if use is None or use.call_id != deposit_id:
            raise WireError("E-SNAPSHOT", "a deposit whose index is marked", "another one")
        return cls(epoch=epoch, key_epoch=key_epoch, deposit_id=deposit_id, message=message)

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return wire.encode(
            [SNAPSHOT_VERSION, self.key_epoch, self._deposit_id, dict(self.message.to_body())]
        )

    def begin(self) -> tuple[DeviceEffect, ...]:
        """Send the deposit for the first time."""
        mark = PersistEpoch(snapshot=self._epoch.snapshot())
        return (mark, Persist(snapshot=self.snapshot()), *self.resume())

    def resume(self) -> tuple[DeviceEffect, ...]:
        """Send the deposit again, after a restart or without a receipt."""
        return (SendUp(message=self.message),)
