"""The aggregator's half of a one-upload round (experimental): a pure machine, as in the other mode.

It opens with MASKED_INPUT: the cohort is who deposited, all of it, so that nobody can claim that it
was drawn at random.

Seam for the gateway:
- once per index, `DepositBook(keys, index, terms)`; where a member has no deposit in it,
  `book.call_to(device)` is sent, and an arriving `Deposit` goes to `book.take(device, message)`.
- a round is `OneUploadAggregator(setup=..., deposits=book, next_deposits=DepositBook(keys, index +
  1, setup.deposit_terms), ...)`. `setup.call.mode` is ONE_UPLOAD, its `key_index` the book's and
  `setup.population` is `book.devices`; the call itself is sent to nobody. Events, effects and
  properties are those of `AggregatorRound`.
- when the round is over, `next_deposits` is the book of the next one; a device that was silent is
  not in it, unless it is asked with `call_to`. After the last index a new key epoch is due.
- after a restart, `replay` and `resume` go on with the round over the same books, which the gateway
  has stored.
"""

from edgefl.errors import LocalProtocolError
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.events import AggregatorEffect, DeviceSaid, PhaseChanged, SendDown
from edgefl.protocol.one_upload_collection import OneUploadCollection
from edgefl.protocol.one_upload_deposits import DepositBook
from edgefl.protocol.one_upload_phases import RevealPhase, UploadPhase
from edgefl.protocol.reasons import AbortReason, RoundMode
from edgefl.protocol.round_messages import SurvivorVote
from edgefl.protocol.round_setup import RoundSetup


class OneUploadAggregator(AggregatorRound):
    """One attempt at one round in the one-upload mode, seen from the aggregator.

    Args:
        setup: The gateway's decisions.
        deposits: Deposits for the index of the round.
        next_deposits: Where deposits that ride on uploads go; None asks for none.
        offline: Devices of the population that are known to be gone.
        now_s: The time.
        keeps_journal: As in the other mode.

    Raises:
        LocalProtocolError: The setup is for another mode, index or terms than the deposits, or
            leaves out a device that deposited.
        ConfigError: So few deposits have no thresholds that the survivor floor allows.
    """

    def __init__(
        self,
        *,
        setup: RoundSetup,
        deposits: DepositBook,
        next_deposits: DepositBook | None,
        offline: frozenset[str],
        now_s: float,
        keeps_journal: bool = False,
    ) -> None:
        """Prepare the round. Nothing is sent before `begin`."""
        _check_setup(setup, deposits, next_deposits)
        self._session = OneUploadCollection(setup, deposits, next_deposits)
        super().__init__(
            setup=setup,
            offline=offline,
            now_s=now_s,
            first=UploadPhase(self._session),
            keeps_journal=keeps_journal,
        )

    def begin(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Announce the plan to the cohort."""
        self._phase_started_s = now_s
        changed = PhaseChanged(phase=self.phase, needed=self._open.needed)
        return (changed, *self._ask_devices(now_s))

    def _on_message(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        effects = super()._on_message(event, now_s)
        is_vote = isinstance(event.message, SurvivorVote)
        late = self._open if is_vote and isinstance(self._open, RevealPhase) else None
        if late is None or event.device in late.done or not late.has_voted(event.device):
            return effects
        request = self.message_for(event.device)
        return (
            effects
            if request is None
            else (*effects, SendDown(device=event.device, message=request))
        )

    def _abort(self, reason: AbortReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        if reason is AbortReason.TOO_FEW_UNMASKED:
            for device in self._session.bad_sealers():
                self._log.note_liar(device)
        return super()._abort(reason, now_s)


def _check_setup(
    setup: RoundSetup, deposits: DepositBook, next_deposits: DepositBook | None
) -> None:
    call = setup.call
    asked = (call.mode, call.key_index, setup.deposit_terms, setup.keys)
    if asked != (RoundMode.ONE_UPLOAD, deposits.key_index, deposits.terms, deposits.keys):
        raise LocalProtocolError(
            "E-SETUP-DEPOSITS",
            "a one-upload round over deposits of its index, terms and key epoch",
            f"{call.mode.name}, index {call.key_index} and {deposits.key_index}",
        )
    if setup.population != deposits.devices:
        raise LocalProtocolError(
            "E-SETUP-SAMPLED",
            f"all {len(deposits.devices)} devices that deposited",
            f"{len(setup.population)} devices",
        )
    follows = next_deposits is None or (
        next_deposits.key_index == deposits.key_index + 1
        and next_deposits.terms == deposits.terms
        and next_deposits.keys is deposits.keys
    )
    if not follows:
        raise LocalProtocolError(
            "E-SETUP-DEPOSITS", "a book for the next index under the same terms", "another one"
        )
