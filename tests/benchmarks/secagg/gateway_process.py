"""The gateway's end of a large round in a process of its own, whose memory is looked at.

The key epoch's public side goes over once; from then on signed messages go to and fro one at a
time, so that this process holds no more of them than a gateway with one transfer under way does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.plan import Thresholds
from edgefl.protocol.reasons import Phase
from edgefl.protocol.roster import Roster
from edgefl.protocol.wire import WireValue
from tests.benchmarks.secagg.fleet_end import digest_of
from tests.benchmarks.secagg.gateway_end import Addressed, GatewayEnd
from tests.benchmarks.secagg.whole_round import GATEWAY_KEY, RoundSize, round_setup


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFigures:
    """What the process says when the round has ended.

    Attributes:
        phase: COMMITTED or ABORTED.
        reason: Why, where it was aborted.
        thresholds: The plan's.
        survivors: Devices in the sum.
        total_sha256: Digest of the sum.
        unmask_cpu_s: CPU time of reconstruction and mask removal.
        cpu_s: CPU time of the whole round.
        start_bytes: Resident memory before the call, key epoch included.
        peak_bytes: Largest resident memory by the phase in which it was reached.
    """

    phase: str
    reason: str
    thresholds: Thresholds
    survivors: int
    total_sha256: bytes
    unmask_cpu_s: float
    cpu_s: float
    start_bytes: int
    peak_bytes: dict[str, int]


class GatewayProcess:
    """A gateway in a process of its own.

    Args:
        size: The round.
        keys: The key epoch's public side.
        key_index: Which mask keys are used.
    """

    def __init__(self, size: RoundSize, keys: MemberKeys, key_index: int) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(other, size, keys.roster.to_bytes(), keys.to_list(), key_index),
            daemon=True,
        )
        self._process.start()
        other.close()
        self.figures: GatewayFigures | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the round is over."""
        return self.figures is not None

    def begin(self) -> Iterator[Addressed]:
        """Call everybody."""
        return self._ask(("begin", "", b""))

    def receive(self, device: str, payload: bytes) -> Iterator[Addressed]:
        """Take a message."""
        return self._ask(("receive", device, payload))

    def let_time_pass(self) -> Iterator[Addressed]:
        """Let the phase's time run out."""
        return self._ask(("time", "", b""))

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, request: tuple[str, str, bytes]) -> Iterator[Addressed]:
        self._pipe.send(request)
        while True:
            answer = self._pipe.recv()
            if isinstance(answer, tuple):
                yield answer
                continue
            self.figures = answer
            return


def _serve(
    pipe: Connection, size: RoundSize, roster: bytes, keys: list[WireValue], key_index: int
) -> None:
    """Answer each request with messages one by one, then with None or, at the end, the figures."""
    setup = round_setup(size, MemberKeys.from_value(keys, Roster.from_bytes(roster)), key_index)
    gateway = GatewayEnd(setup, GATEWAY_KEY)
    memory = _Memory()
    while True:
        try:
            kind, device, payload = pipe.recv()
        except EOFError:
            return
        memory.note(gateway.phase)
        for message in _answers(gateway, kind, device, payload):
            pipe.send(message)
        memory.note(gateway.phase)
        pipe.send(_figures(gateway, memory) if gateway.has_ended else None)


def _answers(gateway: GatewayEnd, kind: str, device: str, payload: bytes) -> Iterator[Addressed]:
    if kind == "receive":
        return gateway.receive(device, payload)
    return gateway.begin() if kind == "begin" else gateway.let_time_pass()


def _figures(gateway: GatewayEnd, memory: "_Memory") -> GatewayFigures:
    outcome = gateway.outcome
    if outcome is None or outcome.plan is None:
        raise ArithmeticError("a round without a plan")
    return GatewayFigures(
        phase=outcome.report.outcome.name,
        reason=outcome.report.abort_reason.name,
        thresholds=outcome.plan.thresholds,
        survivors=len(outcome.report.survivors),
        total_sha256=b"" if outcome.total is None else digest_of(outcome.total),
        unmask_cpu_s=gateway.unmask_cpu_s,
        cpu_s=gateway.cpu_s,
        start_bytes=memory.start_bytes,
        peak_bytes=memory.peaks,
    )


class _Memory:
    """Peak resident memory by phase, as the kernel keeps it."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self.start_bytes = _status_bytes("VmRSS")
        self._forget_peak()

    def note(self, phase: Phase) -> None:
        """Book the peak since the last call to a phase."""
        self.peaks[phase.name] = max(self.peaks.get(phase.name, 0), _status_bytes("VmHWM"))
        self._forget_peak()

    @staticmethod
    def _forget_peak() -> None:
        # Writing 5 sets the peak back to what is resident now; see proc(5).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status_bytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    if found is None:
        raise OSError(f"no {name} in the status of this process")
    return int(found.group(1)) * 1024
