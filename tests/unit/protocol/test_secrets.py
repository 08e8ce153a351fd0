"""No event, effect, state or error shows a secret, an update or a payload."""

import pytest

from edgefl.errors import EdgeflError
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.events import MaskJob, RoundFinished, Trained, UnmaskJob
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.round_messages import (
    MaskedInput,
    RevealedShares,
    RoutedShares,
    SharedKeys,
)
from tests.round_harness import RoundHarness

WINDOW_BYTES = 6


class Recorder:
    """Everything that went into or came out of a machine's `handle`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[object] = []
        for machine in (DeviceRound, AggregatorRound):
            self._listen(machine, monkeypatch)

    def _listen(self, machine: type, monkeypatch: pytest.MonkeyPatch) -> None:
        handle = machine.handle

        def recorded(this: object, event: object, *rest: object) -> object:
            effects = handle(this, event, *rest)
            self.seen += [this, event, *effects]
            return effects

        monkeypatch.setattr(machine, "handle", recorded)


def texts_of(seen: object) -> str:
    text = f"{seen!r} {seen}"
    if isinstance(seen, EdgeflError):
        text += f" {seen.args!r}"
    return text


def windows(secret: bytes) -> list[str]:
    """Return how pieces of a secret would look in a repr of bytes, in hex, and as numbers."""
    pieces = [secret[at : at + WINDOW_BYTES] for at in range(0, len(secret), WINDOW_BYTES)]
    pieces = [piece for piece in pieces if len(piece) == WINDOW_BYTES and any(piece)]
    return [
        form
        for piece in pieces
        for form in (repr(piece)[2:-1], piece.hex(), ", ".join(str(byte) for byte in piece))
    ]


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch, adversary: AdversaryClass) -> None:
    recorder = Recorder(monkeypatch)
    harness = RoundHarness(4, floor=4, noise=0.4, adversary=adversary)
    harness.run_until(Phase.UNMASKING)
    states = [
        DeviceState.from_bytes(device.flash, device.spool)
        for device in harness.devices.values()
        if device.flash is not None
    ]
    assert len(states) == 4
    harness.run_to_end()
    secrets = [state.require_self_seed().export_bytes() for state in states]
    secrets += [
        key.export_seed().export_bytes()
        for device in harness.devices.values()
        for key in (device.epoch.keys.share_secret, device.epoch.keys.mask_secret(0))
    ]
    secrets += [
        device.identity.signing_key.export_seed().export_bytes()
        for device in harness.devices.values()
    ]
    seen = [*recorder.seen, *states, *harness.devices.values()]
    seen += [device.epoch for device in harness.devices.values()]
    seen += [device.epoch.keys for device in harness.devices.values()]
    for thing in list(recorder.seen):
        if isinstance(thing, MaskJob):
            seeds = (thing.rounding_seed, thing.noise_seed)
            secrets += [thing.update.tobytes(), *(seed.export_bytes() for seed in seeds)]
        if isinstance(thing, UnmaskJob):
            shares = [*thing.seed_shares.values(), *thing.key_shares.values()]
            secrets += [share for by_holder in shares for share in by_holder.values()]
        if isinstance(thing, RoundFinished):
            assert thing.total is not None
            secrets.append(thing.total.tobytes())
    for device in harness.devices.values():
        for _, message in device.sent:
            seen.append(message)
            if isinstance(message, MaskedInput):
                secrets.append(message.packed)
    kinds = {type(thing) for thing in seen}
    assert {Trained, MaskJob, UnmaskJob, RevealedShares, SharedKeys} <= kinds
    # The harness's own devices are not part of the product; their repr shows flash.
    text = "\n".join(
        texts_of(thing) for thing in seen if type(thing).__module__.startswith("edgefl.")
    )
    shown = [form for secret in secrets for form in windows(secret) if form in text]
    assert shown == []
    assert "array(" not in text


def test_the_search_would_find_a_secret() -> None:
    secret = bytes(range(100, 132))
    for text in (repr(secret), secret.hex(), str(list(secret)), repr({"key": secret})):
        assert any(form in text for form in windows(secret))


def test_ciphertexts_and_payloads_are_not_shown() -> None:
    payload = b"\xde\xad\xbe\xef" * 30
    for message in (
        SharedKeys(commitment=bytes(32), sealed=(payload,)),
        RoutedShares(sharers=b"\x01", sealed=(payload,)),
        MaskedInput(packed=payload, skipped=((3, payload[:32]),)),
        RevealedShares(shares=((0, payload[:40]),)),
    ):
        assert repr(payload)[2:20] not in repr(message)
