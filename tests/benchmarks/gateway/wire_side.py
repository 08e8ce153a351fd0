"""Uploads over TLS in a network namespace of their own; prints what they cost as JSON.

unshare -rn python -m tests.benchmarks.gateway.wire_side --size-bytes 250000 --repeats 5
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.gateway.certificates import device_tls, write_certificates
from tests.benchmarks.gateway.lab_device import LabDevice
from tests.benchmarks.gateway.lab_fleet import packed_vector
from tests.benchmarks.gateway.processes import gateway_side
from tests.benchmarks.gateway.quiet_network import make_a_cable, sent_by, traffic

_CUT_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


async def measure(port: int, folder: Path, size_bytes: int, repeats: int) -> dict[str, object]:
    """Upload some times without a cut, and then with one cut each, at other places."""
    tls = device_tls(folder, 0)
    device, packed = LabDevice(0), packed_vector(size_bytes)
    await device.open(port, tls)
    uploads = []
    for attempt in range(1, repeats + 1):
        before, all_before = sent_by(device.wire.socket), traffic()
        await device.upload(packed, attempt)
        after, all_after = sent_by(device.wire.socket), traffic()
        uploads.append(
            {
                "up_bytes": after.up_bytes - before.up_bytes,
                "down_bytes": after.down_bytes - before.down_bytes,
                "counted_bytes": all_after.ip_bytes - all_before.ip_bytes,
            }
        )
    whole_bytes = device.chunk_bytes // repeats
    again_bytes = 0
    for attempt, share in enumerate(_CUT_SHARES, start=repeats + 1):
        sent_bytes = device.chunk_bytes
        work = asyncio.create_task(device.upload(packed, attempt))
        cut_at_bytes = sent_bytes + share * size_bytes
        while device.chunk_bytes < cut_at_bytes:  # noqa: ASYNC110 - bytes tell nobody
            await asyncio.sleep(0.0005)
        device.wire.vanish()
        await device.open(port, tls)
        await work
        again_bytes = max(again_bytes, device.chunk_bytes - sent_bytes - whole_bytes)
    device.close()
    return {"uploads": uploads, "again_bytes": again_bytes}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    make_a_cable()
    with tempfile.TemporaryDirectory(prefix="edgefl-wire") as name:
        folder = Path(name)
        write_certificates(folder, 1)
        with gateway_side(1, "--tls-folder", folder) as (gateway, _):
            ports = gateway.greeting["ports"]
            port = int(ports["mqtts"]) if isinstance(ports, dict) else 0
            gateway.ask("begin", size_bytes=options.size_bytes)
            found = asyncio.run(measure(port, folder, options.size_bytes, options.repeats))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
