"""The demo's own processes: started, killed, started again, and never left behind."""

import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_STOP_S = 5.0


@dataclass(slots=True, kw_only=True)
class Child:
    """One process that can be started again with the same command."""

    name: str
    command: list[str]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    peak_memory_mb: float = 0.0
    kills: int = field(default=0)

    @property
    def is_running(self) -> bool:
        """Tell whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process, unless it is running."""
        if self.is_running:
            return
        with self.log_path.open("ab") as log:
            # The child dies with this process, so that a killed demo leaves nothing behind.
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                preexec_fn=_die_with_parent,
            )

    def kill(self) -> bool:
        """End the process as a dead battery would: SIGKILL, no goodbye."""
        if self.process is None or not self.is_running:
            return False
        self.read_memory()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        return True

    def read_memory(self) -> None:
        """Note the peak memory so far."""
        if self.process is None or not self.is_running:
            return
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.peak_memory_mb = max(self.peak_memory_mb, int(line.split()[1]) / 1024)

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self.process is not None and self.is_running:
            self.process.terminate()

    def wait_or_kill(self) -> None:
        """Wait a moment for the end, then force it."""
        if self.process is None:
            return
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Fleet:
    """A gateway and its devices as processes of this machine.

    Args:
        folder: Where states and logs go.
        devices: Data source by device name.
        fleet: The fleet's name.
        max_epsilon: What the devices' owners accept.

    Attributes:
        enrolment_key: Who signs the roster; None leaves it to the gateway.
        policy: The owners' policy file, if there is one.
        backends: Training library by device; onnx for those that are not listed.
    """

    def __init__(
        self, folder: Path, devices: dict[str, str], *, fleet: str, max_epsilon: float
    ) -> None:
        """Prepare; nothing runs yet."""
        self._folder = folder
        self._sources = devices
        self._fleet = fleet
        self._max_epsilon = max_epsilon
        self.enrolment_key: bytes | None = None
        self.policy: Path | None = None
        self.backends: dict[str, str] = {}
        self.gateway = Child(name="gateway", command=[], log_path=folder / "gateway.log")
        self.agents: dict[str, Child] = {}

    @property
    def gateway_state(self) -> Path:
        """The gateway's state folder."""
        return self._folder / "gateway"

    def start_gateway(self, port: int) -> None:
        """Start the gateway on a port; 0 picks a free one."""
        self.gateway.command = [
            *_EDGEFL,
            *("gateway", "run", "--state", str(self.gateway_state)),
            *("--port", str(port), "--fleet", self._fleet),
            *self._enrolment,
        ]
        self.gateway.start()

    def start_agents(self, port: int) -> None:
        """Start every agent."""
        for device, source in self._sources.items():
            child = Child(
                name=device,
                log_path=self._folder / f"{device}.log",
                command=[
                    *_EDGEFL,
                    *("agent", "run", "--device", device, "--data", source),
                    *("--gateway", f"127.0.0.1:{port}", "--fleet", self._fleet),
                    *("--state", str(self._folder / device)),
                    # Sixteen agents share a machine whose runtime is known: none needs a probe.
                    *("--backend", self.backends.get(device, "onnx"), "--provider", "cpu"),
                    *("--max-epsilon", str(self._max_epsilon)),
                    # A demo shows the same on a laptop without its mains adapter.
                    "--ignore-power",
                    *(() if self.policy is None else ("--policy", str(self.policy))),
                    *self._enrolment,
                    *(("--adversary", "malicious") if self._enrolment else ()),
                ],
            )
            self.agents[device] = child
            child.start()

    @property
    def _enrolment(self) -> tuple[str, ...]:
        key = self.enrolment_key
        return () if key is None else ("--enrolment-key", key.hex())

    def stop(self) -> None:
        """End everything, agents first, and wait until it is gone."""
        children = [*self.agents.values(), self.gateway]
        for child in children:
            child.read_memory()
            child.ask_to_stop()
        for child in children:
            child.wait_or_kill()


_EDGEFL = (sys.executable, "-m", "edgefl.cli")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
