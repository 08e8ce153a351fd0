"""A real gateway through hundreds of rounds: its memory, its files, its time for a round.

    python -m tests.benchmarks.gateway.soak --rounds 500 --devices 50

Agents are real cores in one process (`light_fleet`), the gateway a process as a user starts it.
Exits with 1 where a round fails or memory grows.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgefl.cli.main import main as edgefl
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from tests.benchmarks.gateway import own_figures
from tests.integration.real import Process, wait_until

FLEET = "soak"
WARM_UP_SHARE = 0.2
"""Caches, and the pools of the interpreter, fill in the first rounds."""
_LOOK_S = 0.25
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How the gateway stood after a round.

    Attributes:
        round_number: The round that was committed last.
        rss_bytes: Resident memory.
        cpu_s: CPU seconds so far.
    """

    round_number: int
    rss_bytes: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What a soak found.

    Attributes:
        samples: In order of rounds.
        outcomes: Of all rounds.
        survivors: Of all rounds.
        state_bytes: Files of the state folder at the end, by name.
        wall_s: From the first round's call to the last commit.
    """

    samples: tuple[Sample, ...]
    outcomes: tuple[str, ...]
    survivors: tuple[int, ...]
    state_bytes: dict[str, int]
    wall_s: float

    @property
    def growth_share(self) -> float:
        """Memory at the end beside that after the warm-up: medians of a fifth of the rounds."""
        last = self.samples[-1].round_number
        fifth = max(1, int(last * WARM_UP_SHARE))
        early = [s.rss_bytes for s in self.samples if fifth < s.round_number <= 2 * fifth]
        late = [s.rss_bytes for s in self.samples if s.round_number > last - fifth]
        return statistics.median(late) / statistics.median(early) - 1

    @property
    def cpu_s_per_round(self) -> float:
        """CPU of the gateway for a round, after the first one."""
        first, last = self.samples[0], self.samples[-1]
        return (last.cpu_s - first.cpu_s) / max(1, last.round_number - first.round_number)


@contextmanager
def running_fleet(folder: Path, devices: int) -> Iterator[tuple[Process, Path]]:
    """Run a gateway and its agents; yields the gateway and its state folder."""
    state, out = folder / "gateway", folder / "output"
    words = ("gateway", "run", "--port", 0, "--state", state, "--fleet", FLEET)
    gateway = Process(out, *words)
    fleet = None
    try:
        wait_until((state / "gateway.json").exists, "the gateway's start", timeout_s=120)
        port = json.loads((state / "gateway.json").read_text())["port"]
        fleet = Process(
            out, "--port", port, "--devices", devices, "--fleet", FLEET,
            program=("-m", "tests.benchmarks.gateway.light_fleet"),
        )  # fmt: skip
        yield gateway, state
    finally:
        for process in (fleet, gateway):
            if process is not None:
                process.stop()


def soak(folder: Path, *, rounds: int, devices: int, longest_s: float) -> Soak:
    """Run so many rounds.

    Raises:
        TimeoutError: They do not end in time.
    """
    with running_fleet(folder, devices) as (gateway, state):
        bundle = folder / "model.efl"
        bundle.write_bytes(compile_bundle(demo_model(1)).bundle_bytes)
        words = ["task", "submit", bundle, "--name", "soak", "--cohort", devices,
                 "--rounds", rounds, "--epsilon-budget", 1e9, "--state", state,
                 "--phase-limit-s", 120]  # fmt: skip
        if edgefl([str(word) for word in words]):
            raise SystemExit("the task is refused")
        return _watch(gateway, state, longest_s)


def _watch(gateway: Process, state: Path, longest_s: float) -> Soak:
    samples: list[Sample] = []
    ended: list[dict[str, object]] = []
    deadline_s = time.monotonic() + longest_s
    began_s, is_over = 0.0, False
    with (state / "events.jsonl").open(encoding="utf-8") as lines:
        while not is_over:
            if time.monotonic() > deadline_s or not gateway.is_running:
                raise TimeoutError(f"{len(ended)} rounds after {longest_s} s: {gateway.err[-500:]}")
            for event in _new_events(lines.readlines()):
                began_s = began_s or float(str(event["time"])) * (event["kind"] == "phase")
                is_over = is_over or event["kind"] == "task-ended"
                if event["kind"] == "round":
                    ended.append(event)
                    samples.append(_sample(gateway.process_id, int(str(event["round"]))))
            time.sleep(_LOOK_S)
    return Soak(
        samples=tuple(samples),
        outcomes=tuple(str(event["outcome"]) for event in ended),
        survivors=tuple(int(str(event["survivors"])) for event in ended),
        state_bytes={p.name: p.stat().st_size for p in sorted(state.iterdir()) if p.is_file()},
        wall_s=float(str(ended[-1]["time"])) - began_s,
    )


def _new_events(lines: Sequence[str]) -> Iterator[dict[str, object]]:
    # A line that is being written has no end yet; rounds' lines come long before the next look.
    for line in lines:
        if line.endswith("}\n"):
            yield json.loads(line)


def _sample(process_id: int, round_number: int) -> Sample:
    return Sample(
        round_number=round_number,
        rss_bytes=own_figures.memory_of(process_id)["rss_bytes"],
        cpu_s=own_figures.ticks_of(process_id),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say whether it held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--longest-s", type=float, default=7200)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="edgefl-soak") as name:
        found = soak(
            Path(name),
            rounds=options.rounds,
            devices=options.devices,
            longest_s=options.longest_s,
        )
    for sample in found.samples[:: max(1, len(found.samples) // 20)]:
        sys.stdout.write(
            f"round {sample.round_number}: {sample.rss_bytes / _MIB:.1f} MiB,"
            f" {sample.cpu_s:.1f} CPU s\n"
        )
    failed = sum(outcome != "COMMITTED" for outcome in found.outcomes)
    full = sum(count == options.devices for count in found.survivors)
    sys.stdout.write(
        f"{len(found.outcomes)} rounds in {found.wall_s:.0f} s, {failed} not committed,"
        f" {full} with every device; memory {found.growth_share:+.1%} after the warm-up;"
        f" {found.cpu_s_per_round:.3f} CPU s a round; load {os.getloadavg()[0]:.1f};"
        f" files {found.state_bytes}\n"
    )
    return 1 if failed or found.growth_share > 0.1 else 0


if __name__ == "__main__":
    raise SystemExit(main())
