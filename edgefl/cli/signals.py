"""Run asynchronous work until it is done or a signal asks for its end."""

import asyncio
import signal
from collections.abc import Coroutine


async def run_until_signal(work: Coroutine[None, None, None]) -> int:
    """Run until done, SIGTERM or SIGINT; a signal ends the work cleanly.

    Returns:
        0, or 130 after SIGINT.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 130 if received[0] is signal.SIGINT else 0
    return 0
