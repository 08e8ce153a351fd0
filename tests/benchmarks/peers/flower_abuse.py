"""What a malicious Flower server asks a client for, and whether the client refuses."""

from collections.abc import Callable, Iterator

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

from tests.benchmarks.peers.flower_round import MOD, config

_CLIENTS = 4
_THRESHOLD = 3


def abuse_cases() -> Iterator[tuple[str, bool]]:
    """Yield each case with whether it was refused."""
    for case, attempt in _CASES.items():
        yield case, _is_refused(attempt)


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except Exception:  # noqa: BLE001 - Flower's clients refuse with whatever they raise
        return True
    return False


def _new_state() -> object:
    state = MOD.SecAggPlusState()
    state.nid = 0
    return state


def _invented_keys() -> list[bytes]:
    return [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)]


def _share_with(state: object, threshold: int, peers: int) -> None:
    own = MOD._setup(state, config(_CLIENTS, _CLIENTS, threshold))
    keys = {"0": [own[Key.PUBLIC_KEY_1], own[Key.PUBLIC_KEY_2]]}
    keys.update({str(i): _invented_keys() for i in range(1, 1 + peers)})
    MOD._share_keys(state, keys)


def _ready_to_unmask() -> object:
    """Return a client that holds shares of all four."""
    state = MOD.SecAggPlusState()
    state.nid = 0
    _share_with(state, _THRESHOLD, _CLIENTS - 1)
    own_seed_share = state.rd_seed_share_dict[0]
    own_key_share = state.sk1_share_dict[0]
    for owner in range(1, _CLIENTS):
        state.rd_seed_share_dict[owner] = own_seed_share
        state.sk1_share_dict[owner] = own_key_share
    return state


def _unmask(active: list[int], dead: list[int]) -> object:
    return MOD._unmask(
        _ready_to_unmask(), {Key.ACTIVE_NODE_ID_LIST: active, Key.DEAD_NODE_ID_LIST: dead}
    )


def _mask_alone() -> None:
    state = _new_state()
    _share_with(state, 1, 0)
    MOD._collect_masked_vectors(
        state,
        {Key.CIPHERTEXT_LIST: [], Key.SOURCE_LIST: []},
        1,
        ndarrays_to_parameters([np.zeros(8)]),
    )


_CASES: dict[str, Callable[[], object]] = {
    "one client among the survivors and among the dropped": lambda: _unmask([0, 1, 2, 3], [2]),
    "one survivor named three times meets the threshold": lambda: _unmask([1, 1, 1], []),
    "a second unmask request": lambda: MOD.check_stage(Stage.UNMASK, {Key.STAGE: Stage.UNMASK}),
    "a threshold of 1": lambda: _share_with(_new_state(), 1, 3),
    "a threshold of 2": lambda: _share_with(_new_state(), 2, 3),
    "a cohort of one": _mask_alone,
    "keys of all neighbours made up by the server": lambda: _share_with(
        _new_state(), _THRESHOLD, 3
    ),
}
