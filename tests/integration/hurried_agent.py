"""The `edgefl` command with an agent in a hurry: it looks at power, rests and waits for less long.

Run by tests. Nothing else is changed, and no option of the product does this.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from edgefl.agent import clock, eligibility, room, runtime
from edgefl.agent.events import AgentEvent
from edgefl.agent.power import sensors
from edgefl.cli.main import main

_HURRY = 50


def hurry() -> None:
    """Shorten every wait of an agent, and give it another board where the test asks for one."""
    runtime._GUARD_S /= _HURRY
    runtime._LEAST_SLEEP_S = 1
    runtime.AgentRuntime.__init__.__kwdefaults__.update(guard_s=0.5, quiet_s=0.5)
    room.wait_for_room.__kwdefaults__.update(look_s=0.2)
    eligibility.SUPPLY_SETTLES_S = 0.5
    sensors.LEAST_AGE_S = 0.4
    if "EDGEFL_TEST_BOARD" in os.environ:
        board = Path(os.environ["EDGEFL_TEST_BOARD"])
        sensors.Sensors.__init__.__kwdefaults__.update(root=board, pisugar=())
    if "EDGEFL_TEST_RELEASED_S" in os.environ:
        clock.RELEASED_S = float(os.environ["EDGEFL_TEST_RELEASED_S"])
    if "EDGEFL_TEST_TRAINING_HANGS" in os.environ:
        _let_training_hang()
    if "EDGEFL_TEST_HANGS_AFTER_S" in os.environ:
        _let_the_core_hang(float(os.environ["EDGEFL_TEST_HANGS_AFTER_S"]))


def _let_training_hang() -> None:
    """Let the first training never end, and have it noticed soon."""
    from edgefl.agent import learning, overdue

    overdue.OverdueJobs.__init__.__defaults__ = (1.0, 1.0)

    def hang(*_: object) -> None:
        sys.stderr.write("training hangs now\n")
        sys.stderr.flush()
        time.sleep(3600)

    learning.LocalLearner.learn = hang


def _let_the_core_hang(after_s: float) -> None:
    """Let the loop wait for something that never comes, while all else goes on."""
    hangs_at_s = time.monotonic() + after_s
    next_event = runtime.AgentRuntime._next_event

    async def hang(agent: runtime.AgentRuntime) -> AgentEvent:
        if time.monotonic() >= hangs_at_s:
            sys.stderr.write("hangs now\n")
            sys.stderr.flush()
            await asyncio.Event().wait()
        return await next_event(agent)

    runtime.AgentRuntime._next_event = hang


if __name__ == "__main__":
    hurry()
    sys.exit(main())
