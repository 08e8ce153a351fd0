"""What a device may send in vain: the aggregator refuses it by name, and the others go on."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.reasons import AbortReason, AdversaryClass, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    SharedKeys,
)
from tests.liar import (
    FLOOR,
    LIAR,
    MALICIOUS,
    N_DEVICES,
    SEMI,
    codes,
    goes_on_without_the_liar,
    new_round,
    own_message,
    say,
)
from tests.round_harness import RoundHarness

# ---------------------------------------------------------------- CHECK_IN


def _key_of_another(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del own
    return other


def _key_without_its_path(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    return dataclasses.replace(own, key=other.key)


def _weak_key(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del other
    return dataclasses.replace(own, key=bytes(32))


def _shorter_path(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del other
    return dataclasses.replace(own, path=own.path[:-1])


@pytest.mark.parametrize(
    "change", [_key_of_another, _key_without_its_path, _weak_key, _shorter_path]
)
def test_a_mask_key_outside_of_the_own_bundle_is_refused(
    change: Callable[[MaskKeyProof, MaskKeyProof], MaskKeyProof],
) -> None:
    harness = new_round()
    other = own_message(harness, "d00", Phase.CHECK_IN)
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    assert isinstance(other, CheckIn)
    say(harness, "d00", other)
    forged = change(message.mask_key, other.mask_key)
    say(harness, LIAR, dataclasses.replace(message, mask_key=forged))
    assert codes(harness) == ["E-MASK-KEY-PATH"]
    goes_on_without_the_liar(harness, Phase.CHECK_IN)


def test_a_mask_key_of_another_index_is_refused() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    device = harness.devices[LIAR]
    device.epoch.reserve_index(3, bytes(32))
    say(harness, LIAR, dataclasses.replace(message, mask_key=device.epoch.keys.mask_proof(3)))
    assert codes(harness) == ["E-PEER-INDEX"]
    goes_on_without_the_liar(harness, Phase.CHECK_IN)


def test_a_device_that_was_not_called_is_refused() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR - 1, absent=frozenset({LIAR}))
    called = own_message(harness, "d00", Phase.CHECK_IN)
    say(harness, LIAR, called)
    assert codes(harness) == ["E-CHECK-IN-IDENTITY"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED


def test_a_check_in_to_another_call_changes_nothing() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    say(harness, LIAR, dataclasses.replace(message, call_id=bytes(32)))
    assert codes(harness) == []
    assert harness.aggregator.arrived == 0


def test_a_second_check_in_with_another_proof_is_refused() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    second = dataclasses.replace(message.mask_key, key=bytes(range(32)))
    say(harness, LIAR, dataclasses.replace(message, mask_key=second))
    assert codes(harness) == ["E-CHECK-IN-TWICE"]
    # Its key stays in the plan, but nobody waits for it any more.
    goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


# ---------------------------------------------------------------- SHARE_KEYS


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed[:-1],
        lambda sealed: (*sealed, bytes(120)),
        lambda _: (),
    ],
    ids=["one less", "one more", "none"],
)
def test_sealed_shares_of_another_count_are_refused(
    change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]],
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, dataclasses.replace(message, sealed=change(message.sealed)))
    assert codes(harness) == ["E-SHARES-COUNT"]
    goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


def test_second_shares_are_refused_and_the_first_are_kept() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, message)
    say(harness, LIAR, dataclasses.replace(message, commitment=bytes(32)))
    assert codes(harness) == ["E-SHARES-TWICE"]
    # Its shares arrived: it counts as one that shared, and drops out in the next phase.
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


# ---------------------------------------------------------------- MASKED_INPUT


def _too_short(packed: bytes) -> bytes:
    return packed[:-1]


def _too_long(packed: bytes) -> bytes:
    return packed + b"\x00"


def _padding_set(packed: bytes) -> bytes:
    return packed[:-1] + bytes([packed[-1] | 0x80])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_too_short, "E-PACKED-LENGTH"),
        (_too_long, "E-PACKED-LENGTH"),
        (lambda _: b"", "E-PACKED-LENGTH"),
        (_padding_set, "E-PACKED-PADDING"),
    ],
)
def test_a_masked_input_of_another_form_is_refused(
    change: Callable[[bytes], bytes], code: str
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=change(message.packed)))
    assert codes(harness) == [code]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


def test_a_second_masked_input_is_refused_and_the_first_counts() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    say(harness, LIAR, MaskedInput(packed=bytes(len(message.packed))))
    say(harness, LIAR, dataclasses.replace(message, skipped=((0, bytes(32)),)))
    assert codes(harness) == ["E-INPUT-TWICE"], "after the first it is not listened to"
    outcome = harness.run_to_end()
    assert LIAR in outcome.report.survivors
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_wrong_vector_fails_the_sum_check() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=bytes([message.packed[0] ^ 1]) + message.packed[1:]))
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.SUM_CHECK_FAILED
    assert outcome.report.sum_check_held is False
    assert outcome.total is None


def _stranger(harness: RoundHarness, own: int) -> list[int]:
    del harness, own
    return [200]


def _itself(harness: RoundHarness, own: int) -> list[int]:
    del harness
    return [own]


def _too_many(harness: RoundHarness, own: int) -> list[int]:
    plan = harness.aggregator.plan
    assert plan is not None
    others = [position for position in range(plan.size) if position != own]
    return others[: plan.size - plan.thresholds.neighbourhood]


@pytest.mark.parametrize("skipped", [_stranger, _itself, _too_many])
def test_leaving_out_masks_of_others_than_some_neighbours_is_refused(
    skipped: Callable[[RoundHarness, int], list[int]],
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    positions = skipped(harness, harness.position_of(LIAR))
    seeds = tuple((position, bytes(32)) for position in positions)
    say(harness, LIAR, dataclasses.replace(message, skipped=seeds))
    assert codes(harness) == ["E-INPUT-SKIPPED"]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


@pytest.mark.parametrize("adversary", [SEMI, MALICIOUS])
def test_where_the_gateway_may_lie_no_mask_is_left_out(adversary: AdversaryClass) -> None:
    harness = new_round(adversary)
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, dataclasses.replace(message, skipped=((0, bytes(32)),)))
    assert codes(harness) == ["E-INPUT-SKIPPED"]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


# ---------------------------------------------------------------- bad ciphertexts


def spoil(harness: RoundHarness, sealer: str, receivers: list[str]) -> None:
    """Let a device send ciphertexts that some of its neighbours cannot open."""
    message = own_message(harness, sealer, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    own = harness.position_of(sealer)
    sealed = list(message.sealed)
    for receiver in receivers:
        # In the complete graph the list holds every position but the own one.
        position = harness.position_of(receiver)
        sealed[position - (position > own)] = bytes(120)
    say(harness, sealer, dataclasses.replace(message, sealed=tuple(sealed)))


@pytest.mark.parametrize("silent", ["nobody", "the sealer", "the receiver"])
def test_one_bad_ciphertext_costs_nobody_anything(silent: str) -> None:
    harness = new_round()
    spoil(harness, LIAR, ["d02"])
    harness.run_until(Phase.MASKED_INPUT)
    gone = {"nobody": None, "the sealer": LIAR, "the receiver": "d02"}[silent]
    if gone is not None:
        harness.silence(harness.devices[gone])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert set(outcome.report.survivors) == set(harness.devices) - {gone}
    assert outcome.report.skipped_edges == (0 if silent == "the receiver" else 1)
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_two_devices_that_cannot_open_each_others_shares() -> None:
    harness = new_round(n_devices=8)
    spoil(harness, "d01", ["d02", "d04"])
    spoil(harness, "d02", ["d01"])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.report.skipped_edges == 2
    assert len(outcome.report.survivors) == 8
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_sealer_that_nobody_can_open_drops_out_without_a_trace() -> None:
    """No mask was made with it, so that nothing of it must be reconstructed."""
    harness = new_round()
    spoil(harness, LIAR, [name for name in harness.devices if name != LIAR])
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices[LIAR])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR not in outcome.report.survivors
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_wrong_seed_for_a_left_out_mask_fails_the_sum_check() -> None:
    harness = new_round()
    spoil(harness, LIAR, ["d02"])
    message = own_message(harness, "d02", Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    ((position, _),) = message.skipped
    say(harness, "d02", dataclasses.replace(message, skipped=((position, bytes(32)),)))
    assert harness.run_to_end().report.abort_reason is AbortReason.SUM_CHECK_FAILED
