"""The embedded MQTT endpoint: starts the broker process, watches over it, ends it."""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections import deque
from pathlib import Path

from edgefl.errors import EnvironmentProblem, TransportError

_LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"
_START_S = 20.0
_STOP_S = 3.0
_RESTARTS = 5
_RESTARTS_WITHIN_S = 60.0


class EmbeddedEndpoint:
    """An MQTT 3.1.1 broker on loopback, in a child process that dies with this one.

    It keeps nothing on disk: after a restart of the child its clients find no session and no
    retained message, and must say again what they want known.

    Args:
        port: TCP port, or 0 for a free one, which restarts keep.
        state_dir: Folder for the broker's log and `endpoint.json` (port and process id).
    """

    def __init__(self, *, port: int, state_dir: Path) -> None:
        """Prepare; nothing runs before `start`."""
        self._port = port
        self._state_dir = state_dir
        self._process: asyncio.subprocess.Process | None = None
        self._is_closing = False
        self._restart_times: deque[float] = deque(maxlen=_RESTARTS)
        self.restart_count = 0

    @property
    def port(self) -> int:
        """The TCP port; 0 until a free one was found."""
        return self._port

    @property
    def process_id(self) -> int | None:
        """The broker's process id, or None when it is not running."""
        if self._process is None or self._process.returncode is not None:
            return None
        return self._process.pid

    async def start(self) -> None:
        """Start the broker and wait until it accepts connections.

        Raises:
            EnvironmentProblem: the port is in use or forbidden, or the broker does not start.
        """
        self._state_dir.mkdir(parents=True, exist_ok=True)
        process = await self._spawn()
        self._process = process
        try:
            self._port = await self._read_port(process)
        except BaseException:
            await self._end(process)
            raise
        self._write_status(process.pid)

    async def wait_dead(self) -> int:
        """Wait until the broker has ended.

        Returns:
            Its exit code; negative: minus the signal that ended it.

        Raises:
            TransportError: it was not started.
        """
        if self._process is None:
            raise TransportError("E-ENDPOINT-STATE", "a started endpoint", "one that was not")
        return await self._process.wait()

    async def supervise(self) -> None:
        """Start the broker again, on the same port, whenever it dies; return after `close`.

        Raises:
            EnvironmentProblem: it died five times within a minute, or cannot be started again.
        """
        while True:
            exit_code = await self.wait_dead()
            if self._is_closing:
                return
            self._count_restart(exit_code)
            _LOGGER.warning(
                "the broker ended (%s); starting it again on port %s",
                f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}",
                self._port,
            )
            try:
                await self.start()
            except EnvironmentProblem as error:
                if error.code != "E-BROKER-START":
                    raise
                _LOGGER.warning("%s", error)  # counts as one more death

    async def close(self) -> None:
        """End the broker; clients see their links break."""
        self._is_closing = True
        if self._process is not None:
            await self._end(self._process)
            self._status_path.unlink(missing_ok=True)

    @property
    def _status_path(self) -> Path:
        return self._state_dir / "endpoint.json"

    async def _spawn(self) -> asyncio.subprocess.Process:
        """Start the child; its stderr goes to a file, for there is nothing for the user in it."""
        with (self._state_dir / "broker.stderr").open("wb") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "broker.endpoint_child",
                "--port",
                str(self._port),
                "--log",
                str(self._state_dir / "broker.log"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=_child_environment(),
            )

    async def _read_port(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the child's one line."""
        if process.stdout is None:
            raise TransportError("E-ENDPOINT-STATE", "a pipe from the broker", "none")
        try:
            async with asyncio.timeout(_START_S):
                line = await process.stdout.readline()
        except TimeoutError as error:
            found = f"no answer within {_START_S:.0f} s"
            raise self._no_start(found) from error
        status = _parse_status(line)
        if isinstance(status.get("port"), int):
            return int(str(status["port"]))
        if status.get("problem") == "EADDRINUSE":
            raise EnvironmentProblem(
                "E-PORT-IN-USE",
                f"a free port {self._port} on {HOST}",
                "another program listening there",
                "stop that program, or choose another port (0 takes any free one)",
            )
        if status.get("problem") == "EACCES":
            raise EnvironmentProblem(
                "E-PORT-FORBIDDEN",
                f"permission to listen on port {self._port}",
                "none",
                "choose a port above 1023 (0 takes any free one)",
            )
        raise self._no_start(str(status.get("detail", "it ended at once")))

    def _no_start(self, found: str) -> EnvironmentProblem:
        log = self._state_dir / "broker.stderr"
        advice = f"read {log}; was edgefl-runtime installed with its extra [gateway]?"
        return EnvironmentProblem("E-BROKER-START", "the broker process to start", found, advice)

    def _count_restart(self, exit_code: int) -> None:
        """Give up when restarting does not help."""
        now = time.monotonic()
        times = self._restart_times
        if len(times) == _RESTARTS and now - times[0] < _RESTARTS_WITHIN_S:
            raise EnvironmentProblem(
                "E-BROKER-DIES",
                "a broker that stays alive",
                f"{_RESTARTS + 1} deaths within {now - times[0]:.0f} s, last exit code {exit_code}",
                f"read {self._state_dir / 'broker.stderr'}",
            )
        times.append(now)
        self.restart_count += 1

    def _write_status(self, process_id: int) -> None:
        """Tell tools where the broker is; replaced in one step, so no reader sees half a file."""
        text = json.dumps({"host": HOST, "port": self._port, "process_id": process_id})
        temporary = self._status_path.with_suffix(".new")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(self._status_path)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Ask the child to stop, then insist."""
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _parse_status(line: bytes) -> dict[str, object]:
    """Read the child's line; anything else counts as no answer."""
    try:
        status = json.loads(line)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def _child_environment() -> dict[str, str]:
    """Let the child import what this process imports, also when run from a source tree."""
    paths = [entry for entry in sys.path if entry]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
