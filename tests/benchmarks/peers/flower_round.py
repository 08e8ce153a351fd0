"""A round of Flower's SecAgg+ in one process: its own client functions and server arithmetic.

Nothing is sent: what Flower's messages hold goes from function to function. The order of the calls
and the sets they get are those of Flower's server workflow.
"""

import contextlib
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

# The package exports a function of the module's name, so that the module is asked for by name.
MOD = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

CLIPPING_RANGE, TARGET_RANGE, MOD_RANGE, MAX_WEIGHT = 8.0, 1 << 22, 1 << 32, 1000.0
"""Flower's defaults."""

Record = dict[str, object]


def config(clients: int, shares: int, threshold: int) -> Record:
    """Return what Flower's server sends in its first stage."""
    return {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: shares,
        Key.THRESHOLD: threshold,
        Key.CLIPPING_RANGE: CLIPPING_RANGE,
        Key.TARGET_RANGE: TARGET_RANGE,
        Key.MOD_RANGE: MOD_RANGE,
        Key.MAX_WEIGHT: MAX_WEIGHT,
    }


@dataclass
class Outcome:
    """What came of a round, and the CPU time of both sides."""

    completed: bool
    reason: str = ""
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    largest_error: float = 0.0
    upload_bytes: int = 0


@dataclass
class Round:
    """n clients on a ring, each with the nearest ones as neighbours and itself among the holders.

    Attributes:
        holders: Shares of each secret, own one included; odd below n, as Flower advises.
        silent: Clients that fall silent before a stage.
    """

    clients: int
    holders: int
    threshold: int
    coordinates: int
    silent: Mapping[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.ids = list(range(self.clients))
        self.updates = {i: rng.uniform(-1, 1, self.coordinates) for i in self.ids}
        self.states = {i: MOD.SecAggPlusState() for i in self.ids}
        for i in self.ids:
            self.states[i].nid = i
        half = self.holders >> 1
        self.neighbours = {
            i: {(i + offset) % self.clients for offset in range(-half, half + 1)} for i in self.ids
        }
        self.active = set(self.ids)
        self.client_cpu_s = 0.0

    def run(self) -> Outcome:
        """Run all stages."""
        setup = config(self.clients, self.holders, self.threshold)
        keys = {
            i: [reply[Key.PUBLIC_KEY_1], reply[Key.PUBLIC_KEY_2]]
            for i, reply in self._stage(
                "setup", lambda i: MOD._setup(self.states[i], setup)
            ).items()
        }
        if not self._holds():
            return Outcome(completed=False, reason="too few after setup")
        present = set(self.active)
        shared = self._stage(
            "share_keys",
            lambda i: MOD._share_keys(
                self.states[i], {str(j): keys[j] for j in self.neighbours[i] & present}
            ),
        )
        if not self._holds():
            return Outcome(completed=False, reason="too few after share_keys")
        masked = self._masked_vectors(shared)
        if not self._holds():
            return Outcome(completed=False, reason="too few after masked_vectors")
        survivors = set(self.active)
        total, upload_bytes = self._add_up(masked)
        revealed = self._reveal(survivors)
        if any(len(found) < self.threshold for found in revealed.values()):
            return Outcome(completed=False, reason="too few shares")
        started = time.process_time()
        total = self._remove_masks(total, revealed, survivors, keys)
        server_cpu_s = time.process_time() - started
        return Outcome(
            completed=True,
            server_cpu_s=server_cpu_s,
            client_cpu_s=self.client_cpu_s,
            largest_error=self._largest_error(total, survivors),
            upload_bytes=upload_bytes,
        )

    def _stage(self, name: str, work: Callable[[int], Record]) -> dict[int, Record]:
        """Let everybody who is left work; a client that raises answers with an error in Flower."""
        self.active -= set(self.silent.get(name, []))
        replies: dict[int, Record] = {}
        started = time.process_time()
        for i in sorted(self.active):
            # Flower's clients raise whatever fails.
            with contextlib.suppress(Exception):
                replies[i] = work(i)
        self.client_cpu_s += time.process_time() - started
        self.active = set(replies)
        return replies

    def _holds(self) -> bool:
        return all(len(self.neighbours[i] & self.active) >= self.threshold for i in self.ids)

    def _masked_vectors(self, shared: Mapping[int, Record]) -> dict[int, Record]:
        sources: defaultdict[int, list[int]] = defaultdict(list)
        sealed: defaultdict[int, list[object]] = defaultdict(list)
        for source, reply in shared.items():
            for holder, ciphertext in zip(
                reply[Key.DESTINATION_LIST], reply[Key.CIPHERTEXT_LIST], strict=True
            ):
                sources[holder].append(source)
                sealed[holder].append(ciphertext)
        return self._stage(
            "masked_vectors",
            lambda i: MOD._collect_masked_vectors(
                self.states[i],
                {Key.CIPHERTEXT_LIST: sealed[i], Key.SOURCE_LIST: sources[i]},
                int(MAX_WEIGHT),
                ndarrays_to_parameters([self.updates[i]]),
            ),
        )

    @staticmethod
    def _add_up(masked: Mapping[int, Record]) -> tuple[list[np.ndarray], int]:
        total: list[np.ndarray] | None = None
        upload_bytes = 0
        for reply in masked.values():
            upload_bytes = sum(map(len, reply[Key.MASKED_PARAMETERS]))
            vector = [bytes_to_ndarray(part) for part in reply[Key.MASKED_PARAMETERS]]
            total = vector if total is None else parameters_addition(total, vector)
        return parameters_mod(total, MOD_RANGE), upload_bytes

    def _reveal(self, survivors: set[int]) -> dict[int, list[bytes]]:
        dead = set(self.ids) - survivors
        replies = self._stage(
            "unmask",
            lambda i: MOD._unmask(
                self.states[i],
                {
                    Key.ACTIVE_NODE_ID_LIST: list(self.neighbours[i] & survivors),
                    Key.DEAD_NODE_ID_LIST: list(self.neighbours[i] & dead),
                },
            ),
        )
        revealed: dict[int, list[bytes]] = {i: [] for i in self.ids}
        for reply in replies.values():
            for owner, share in zip(reply[Key.NODE_ID_LIST], reply[Key.SHARE_LIST], strict=True):
                revealed[owner].append(share)
        return revealed

    def _remove_masks(
        self,
        total: list[np.ndarray],
        revealed: Mapping[int, list[bytes]],
        survivors: set[int],
        keys: Mapping[int, list[bytes]],
    ) -> list[np.ndarray]:
        shapes = [part.shape for part in total]
        for owner, shares in revealed.items():
            secret = combine_shares(shares)
            if owner in survivors:
                mask = pseudo_rand_gen(secret, MOD_RANGE, shapes)
                total = parameters_subtraction(total, mask)
                continue
            for peer in self.neighbours[owner] - {owner}:
                seed = generate_shared_key(
                    bytes_to_private_key(secret), bytes_to_public_key(keys[peer][0])
                )
                mask = pseudo_rand_gen(seed, MOD_RANGE, shapes)
                undo = parameters_addition if owner > peer else parameters_subtraction
                total = undo(total, mask)
        return parameters_mod(total, MOD_RANGE)

    def _largest_error(self, total: list[np.ndarray], survivors: set[int]) -> float:
        ratio = int(total[0][0])
        mean = dequantize(total[1:], CLIPPING_RANGE, TARGET_RANGE)[0]
        mean = (mean - (len(survivors) - 1) * CLIPPING_RANGE) * (TARGET_RANGE / ratio)
        right = np.mean([self.updates[i] for i in sorted(survivors)], axis=0)
        return float(np.abs(mean - right).max())
