"""One repetition at a time of what Flower's SecAgg+ does, for `tests.benchmarks.secagg.goals`.

Run by it in an environment with flwr: `python -m tests.benchmarks.peers.flower_secagg` answers JSON
lines. Times are CPU seconds of this process around Flower's functions alone; what stands in for
other clients is made beforehand.
"""

import functools
import importlib.metadata
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from tests.benchmarks.peers.flower_abuse import abuse_cases
from tests.benchmarks.peers.flower_round import MOD, MOD_RANGE, Round, config
from tests.benchmarks.peers.json_lines import Json, serve

_SEED_SHARE_BYTES, _KEY_SHARE_BYTES = 52, 308
"""Shares of a 32-byte seed and of a PEM key in Flower's format."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def number(request: Json, name: str) -> int:
    """Read a whole number of a request."""
    return int(str(request[name]))


def masks(request: Json) -> Json:
    """Expand and add the masks of one vector."""
    coordinates, count = number(request, "coordinates"), number(request, "masks")
    seeds = [os.urandom(32) for _ in range(count)]
    vector = np.zeros(coordinates, dtype=np.int64)

    def expand() -> None:
        total = [vector]
        for seed in seeds:
            total = parameters_addition(total, pseudo_rand_gen(seed, MOD_RANGE, [vector.shape]))

    return {"cpu_s": cpu_seconds(expand)}


def shamir(request: Json) -> Json:
    """Split a 32-byte secret and combine `threshold` of its shares."""
    holders, threshold = number(request, "holders"), number(request, "threshold")
    return _split_and_combine(os.urandom(32), holders, threshold, threshold)


def _split_and_combine(secret: bytes, holders: int, threshold: int, revealed: int) -> Json:
    started = time.process_time()
    shares = create_shares(secret, threshold, holders)
    split_s = time.process_time() - started
    chosen = list(shares)[:revealed]
    return {
        "split_s": split_s,
        "combine_s": cpu_seconds(lambda: combine_shares(chosen)),
        "share_bytes": len(chosen[0]),
    }


@functools.cache
def stand_ins(neighbours: int) -> list[list[bytes]]:
    """Return public keys of that many others."""
    return [
        [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)] for _ in range(neighbours)
    ]


def client(request: Json) -> Json:
    """Do all that one client does in a round in which nobody drops out."""
    coordinates, neighbours = number(request, "coordinates"), number(request, "neighbours")
    holders = neighbours + 1
    others = list(range(1, holders))
    parameters = ndarrays_to_parameters([np.random.default_rng(0).normal(size=coordinates)])
    state = MOD.SecAggPlusState()
    state.nid = 0
    peers = stand_ins(neighbours)
    setup = config(holders, holders, (2 * holders) // 3)
    started = time.process_time()
    own = MOD._setup(state, setup)
    keys = {"0": [own[Key.PUBLIC_KEY_1], own[Key.PUBLIC_KEY_2]]}
    keys.update({str(i): peers[i - 1] for i in others})
    shared = MOD._share_keys(state, keys)
    cpu_s = time.process_time() - started
    sealed = [
        encrypt(
            state.ss2_dict[i],
            share_keys_plaintext_concat(i, 0, bytes(_SEED_SHARE_BYTES), bytes(_KEY_SHARE_BYTES)),
        )
        for i in others
    ]
    started = time.process_time()
    masked = MOD._collect_masked_vectors(
        state, {Key.CIPHERTEXT_LIST: sealed, Key.SOURCE_LIST: others}, 10, parameters
    )
    MOD._unmask(state, {Key.ACTIVE_NODE_ID_LIST: [0, *others], Key.DEAD_NODE_ID_LIST: []})
    cpu_s += time.process_time() - started
    return {
        "cpu_s": cpu_s,
        "sealed_bytes": len(shared[Key.CIPHERTEXT_LIST][0]),
        "upload_bytes": sum(map(len, masked[Key.MASKED_PARAMETERS])),
    }


def server(request: Json) -> Json:
    """Run a whole round in which the first clients fall silent after sharing keys."""
    clients, neighbours = number(request, "clients"), number(request, "neighbours")
    outcome = Round(
        clients=clients,
        holders=neighbours + 1,
        threshold=number(request, "threshold"),
        coordinates=number(request, "coordinates"),
        silent={"masked_vectors": list(range(0, clients, clients // number(request, "dropped")))},
    ).run()
    return asdict(outcome)


def server_parts(request: Json) -> Json:
    """Time what a server's work is made of, to say what a larger round would take.

    Its server combines all shares that arrived, not only as many as the threshold.
    """
    holders, threshold = number(request, "holders"), number(request, "threshold")
    revealed = number(request, "revealed")
    stored = private_key_to_bytes(generate_key_pairs()[0])
    known = public_key_to_bytes(generate_key_pairs()[1])
    seed = os.urandom(32)
    vector = np.zeros(number(request, "coordinates"), dtype=np.int64)

    def one_mask() -> None:
        parameters_addition([vector], pseudo_rand_gen(seed, MOD_RANGE, [vector.shape]))

    return {
        "combine_seed_s": _split_and_combine(seed, holders, threshold, revealed)["combine_s"],
        "combine_key_s": _split_and_combine(stored, holders, threshold, revealed)["combine_s"],
        "agree_s": cpu_seconds(
            lambda: generate_shared_key(bytes_to_private_key(stored), bytes_to_public_key(known))
        ),
        "mask_s": min(cpu_seconds(one_mask) for _ in range(3)),
    }


def drops(request: Json) -> Json:
    """Let one client fall silent before each stage in turn, with every client a holder."""
    clients = number(request, "clients")
    threshold = max(2, 2 * clients // 3)
    return {
        stage: Round(
            clients=clients,
            holders=clients,
            threshold=threshold,
            coordinates=16,
            silent={stage: [1]},
        )
        .run()
        .completed
        for stage in ("setup", "share_keys", "masked_vectors", "unmask")
    }


def abuse(request: Json) -> Json:
    """Try what a malicious server can ask for; True where a client refuses."""
    del request
    return dict(abuse_cases())


def versions(request: Json) -> Json:
    """Say what is measured."""
    del request
    return {name: importlib.metadata.version(name) for name in ("flwr", "numpy")}


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    serve(
        {
            operation.__name__: operation
            for operation in (
                masks,
                shamir,
                client,
                server,
                server_parts,
                drops,
                abuse,
                versions,
            )
        }
    )
