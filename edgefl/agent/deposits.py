"""The agent's deposits for the one-upload mode: made once, kept until the gateway has them."""

from edgefl.agent.events import AgentEffect
from edgefl.agent.keys import AgentKeys
from edgefl.agent.post import Post
from edgefl.agent.rounds import RoundArguments
from edgefl.errors import WireError
from edgefl.protocol.envelope import Header
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import DeviceEffect, Persist, SendUp
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.one_upload_deposit import OneUploadDeposit
from edgefl.protocol.one_upload_messages import Deposit, DepositCall, OneUpload
from edgefl.protocol.one_upload_sizes import DepositTerms, deposit_id_of
from edgefl.protocol.plan import SessionPlan
from edgefl.storage.base import KeyValueStore
from edgefl.types import DeviceId

_STATE = "deposit"
_DEPOSIT = "deposit"


class AgentDeposits:
    """The newest deposit of this device, alone or on an upload.

    It is kept until there is a newer one, and so is the one-time key that it entrusts: the round of
    its index is still to come. One that travelled with an upload may have to travel again: the
    round may close before the upload arrives, and an index is deposited for once.

    Args:
        store: Durable state.
        post: Sends until there is a receipt.
        keys: The device's key epochs.
        device: The device's name.
    """

    def __init__(
        self,
        *,
        store: KeyValueStore,
        post: Post,
        keys: AgentKeys,
        device: DeviceId,
    ) -> None:
        """Go on from flash; a deposit for keys that are gone is wiped."""
        self._store = store
        self._post = post
        self._keys = keys
        self._epoch = keys.epoch
        self._header = Header(sender=device)
        self._sent_as = b""
        self._is_settled = False
        self._newest: OneUploadDeposit | None = None
        snapshot = store.get(_STATE)
        if snapshot is None:
            return
        try:
            self._newest = OneUploadDeposit.restore(snapshot, epoch=keys.epoch)
        except WireError:
            store.delete(_STATE)

    @property
    def indices(self) -> tuple[int, ...]:
        """Key indices of the open key epoch whose rounds are to come."""
        return () if self._newest is None else (self._newest.message.key_index,)

    def answer(
        self, call: DepositCall, arguments: RoundArguments, now_s: float
    ) -> list[AgentEffect]:
        """Answer a call for a deposit: with the one that was made for it, or a new one.

        Raises:
            RemoteProtocolError: The call is refused.
        """
        if self._is_for(call):
            self._is_settled = False
            return self.resume(now_s)
        deposit = OneUploadDeposit.answer(
            call,
            policy=arguments["policy"],
            entropy=arguments["entropy"],
            epoch=self._epoch,
            gateway_key=arguments["gateway_key"],
            today=arguments["today"],
        )
        passed, self._newest, self._is_settled = self._newest, deposit, False
        out = self._carry_out(deposit.begin(), now_s)
        self._release(passed, deposit)
        return out

    def resume(self, now_s: float) -> list[AgentEffect]:
        """Send a deposit again for which no receipt came."""
        if self._newest is None or self._is_settled:
            return []
        return self._carry_out(self._newest.resume(), now_s)

    def keep(self, message: DeviceMessage, plan: SessionPlan | None, digest: bytes | None) -> None:
        """Write down the deposit of an upload before it is sent, for the first time or again.

        Args:
            message: What is to be sent.
            plan: Of its session.
            digest: What its receipt will name; None where it was received.
        """
        opened = self._epoch.open_epoch
        if plan is None or not isinstance(message, OneUpload) or message.next_deposit is None:
            return
        if opened is None or opened.key_epoch != plan.key_epoch:
            return  # Its keys are gone with their key epoch.
        deposit = message.next_deposit
        deposit_id = deposit_id_of(opened, deposit.key_index, DepositTerms.of_plan(plan))
        self._newest = OneUploadDeposit(
            epoch=self._epoch, key_epoch=plan.key_epoch, deposit_id=deposit_id, message=deposit
        )
        if digest is not None:
            self._sent_as, self._is_settled = digest, False
        self._store.put(_STATE, self._newest.snapshot())

    def settle(self, digest: bytes) -> None:
        """Note that the gateway holds the deposit that a receipt names."""
        self._is_settled = self._is_settled or digest == self._sent_as

    # ------------------------------------------------------------ helpers

    def _release(self, passed: OneUploadDeposit | None, newest: OneUploadDeposit) -> None:
        """Destroy the key of a deposit whose round never came: the gateway is past its index."""
        if passed is None or passed.key_epoch != newest.key_epoch:
            return
        index = passed.message.key_index
        use = self._epoch.keys.use_of(index)
        if index != newest.message.key_index and use is not None and use.session_id is None:
            self._store.put_many(self._keys.release(index, key_epoch=passed.key_epoch))

    def _is_for(self, call: DepositCall) -> bool:
        opened = self._epoch.open_epoch
        if self._newest is None or opened is None or opened.key_epoch != call.key_epoch:
            return False
        if self._newest.message.key_index != call.key_index:
            return False
        use = self._epoch.keys.use_of(call.key_index)
        wanted = deposit_id_of(opened, call.key_index, call.terms)
        return use is not None and use.call_id == wanted

    def _carry_out(self, effects: tuple[DeviceEffect, ...], now_s: float) -> list[AgentEffect]:
        out: list[AgentEffect] = []
        for effect in effects:
            if isinstance(effect, PersistEpoch):
                self._keys.persist(effect)
            elif isinstance(effect, Persist):
                self._store.put(_STATE, effect.snapshot)
            elif isinstance(effect, SendUp) and isinstance(effect.message, Deposit):
                out += self._post.send(_DEPOSIT, effect.message, self._header, now_s)
                self._sent_as = self._post.digest_of(_DEPOSIT) or b""
        return out
