"""The broker's own process: listen on loopback, tell the parent, serve until it goes away.

Run as `python -m broker.endpoint_child --port N --log FILE`; the endpoint does. The one line on
stdout is JSON: `{"port": N}` or `{"problem": CODE, "detail": TEXT}`.
"""

import argparse
import asyncio
import ctypes
import errno
import json
import logging
import logging.handlers
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.endpoint_broker import EdgeBroker

HOST = "127.0.0.1"
BACKLOG = 512
_LOG_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker until stdin ends or SIGTERM arrives."""
    parser = argparse.ArgumentParser(prog="broker.endpoint_child", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args(arguments)
    _follow_parent()
    _raise_file_limit()
    _log_to(options.log)
    try:
        listener = _listen(options.port)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        _tell({"problem": name, "detail": error.strerror or str(error)})
        return 1
    asyncio.run(_serve(listener))
    return 0


async def _serve(listener: socket.socket) -> None:
    """Accept until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_input, stop)
    broker = EdgeBroker()
    await broker.start()
    server = await asyncio.start_server(broker.accept, sock=listener, backlog=BACKLOG)
    _tell({"port": listener.getsockname()[1]})
    await stop.wait()
    server.close()
    # amqtt's own shutdown waits for each client in turn; nothing here outlives the process anyway
    os._exit(0)


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """Notice that the parent has closed its end, by intent or by its death."""
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


def _listen(port: int) -> socket.socket:
    """Bind to loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _tell(status: dict[str, object]) -> None:
    """Write the one line that the parent waits for."""
    sys.stdout.write(json.dumps(status) + "\n")
    sys.stdout.flush()


def _follow_parent() -> None:
    """Die with the parent; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        # in addition to the end of stdin, which a forked sibling of ours could hold open
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets this user have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log_to(path: Path) -> None:
    """Send warnings to a file of bounded size, nothing to the terminal."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False


if __name__ == "__main__":
    sys.exit(main())
