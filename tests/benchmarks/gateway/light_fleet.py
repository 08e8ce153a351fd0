"""Many real agent cores in one process, with stand-ins for training and flash: for long runs.

    python -m tests.benchmarks.gateway.light_fleet --port P --devices 50 --fleet lab

Everything between the wire and the core is the agent's own protocol, keys and masks included.
"""

import argparse
import asyncio
import contextlib
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edgefl import __version__
from edgefl._native import Seed, SigningKey, has_aes_hardware
from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    MaskingEnded,
    RunMasking,
    RunTraining,
    Stop,
    TrainingEnded,
)
from edgefl.agent.settings import AgentSettings
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol import masked_input, topics
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.policy import DevicePolicy
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish, Woken
from edgefl.types import DeviceId, FleetName
from tests.benchmarks.peers.mqtt_wire import MqttWire, connect

_STEP = 1e-4
_PAUSE_S = 0.5


class _Entropy:
    def fresh_seed(self) -> Seed:
        return Seed.generate()


class LightAgent:
    """One agent core on a thin client.

    Args:
        number: Names it.
        fleet: The fleet's name.
        port: Where its gateway is.
        worker: Runs the maskings of all.
    """

    def __init__(self, number: int, fleet: FleetName, port: int, worker: ThreadPoolExecutor):
        """Prepare."""
        self._fleet, self._port, self._number = fleet, port, number
        self.name = DeviceId(f"d{number:03}")
        identity = DeviceIdentity(
            device=self.name, signing_key=SigningKey.from_seed(Seed.generate())
        )
        policy = DevicePolicy(privacy=PrivacyPolicy(max_epsilon=math.inf))
        self._core = AgentCore(
            settings=AgentSettings(
                fleet=fleet,
                identity=identity,
                policy=policy,
                agent_version=__version__,
                has_aes=has_aes_hardware(),
            ),
            store=MemoryStore("agent"),
            entropy=_Entropy(),
        )
        self._worker = worker
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue()
        self._wire: MqttWire | None = None

    async def run(self) -> None:
        """Take part until cancelled; connect anew whenever the link breaks."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_link())
            group.create_task(self._work())

    async def _keep_link(self) -> None:
        will = (topics.status(self._fleet, self.name), STATUS_OFFLINE)
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                self._wire = await connect(
                    self._port,
                    f"edgefl-{self._fleet}-{self.name}",
                    is_clean=False,
                    will=will,
                    on_message=lambda topic, payload: self._events.put_nowait(
                        Arrived(topic=topic, payload=payload)
                    ),
                )
                await self._wire.subscribe(self._core.topics)
                self._events.put_nowait(LinkRestored())
                await self._wire.until_lost()
                self._events.put_nowait(LinkLost())
            await asyncio.sleep(_PAUSE_S)

    async def _work(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            wakeup_s = self._core.wakeup_s
            event: AgentEvent = Woken()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wakeup_s):
                    event = await self._events.get()
            for effect in self._core.handle(event, now_s()):
                await self._carry_out(effect)

    async def _carry_out(self, effect: AgentEffect) -> None:
        if isinstance(effect, Publish):
            if self._wire is not None and not self._wire.is_lost:
                with contextlib.suppress(ConnectionError):
                    await self._wire.publish(effect.topic, effect.payload, retain=effect.retain)
        elif isinstance(effect, RunTraining):
            update = np.full(len(effect.parameters) // 4, _STEP * self._number, dtype=np.float32)
            session_id = effect.plan.session_id
            self._events.put_nowait(
                TrainingEnded(session_id=session_id, update=update, note="trained", examples=1)
            )
        elif isinstance(effect, RunMasking):
            loop = asyncio.get_running_loop()
            masked = await loop.run_in_executor(self._worker, masked_input.run, effect.job)
            place = effect.job.session.session_id
            self._events.put_nowait(MaskingEnded(session_id=place, packed=masked.packed))
        elif isinstance(effect, Stop):
            sys.stderr.write(f"{self.name}: {effect.error}\n")
            raise effect.error


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--fleet", required=True)
    options = parser.parse_args()

    async def run() -> None:
        fleet = topics.parse_fleet(options.fleet)
        worker = ThreadPoolExecutor(max_workers=1)
        async with asyncio.TaskGroup() as group:
            for number in range(options.devices):
                agent = LightAgent(number, fleet, options.port, worker)
                group.create_task(agent.run())

    asyncio.run(run())


if __name__ == "__main__":
    main()
