"""The agent's lines in the log about rounds: one for each round that ends, and what is refused."""

import logging

from edgefl.agent.events import KeysReady, Noticed, PhaseReached, RoundEnded

_LOGGER = logging.getLogger(__name__)


def log_effect(effect: PhaseReached | RoundEnded | KeysReady | Noticed) -> None:
    """Say what the core tells."""
    if isinstance(effect, KeysReady):
        _LOGGER.info("key epoch %s is open with %s members", effect.key_epoch, effect.members)
    elif isinstance(effect, PhaseReached):
        _LOGGER.debug("round=%s phase=%s", effect.round_number, effect.phase.name)
    elif isinstance(effect, RoundEnded):
        left = "" if effect.left is None else f" left={effect.left.name}"
        _LOGGER.info(
            "round=%s outcome=%s reason=%s counted=%s%s",
            effect.round_number,
            effect.phase.name,
            effect.abort_reason.name,
            effect.counted,
            left,
        )
    else:
        _LOGGER.warning("ignored: %s", effect.error)
