"""`edgefl selftest`: check the cryptography where it runs, and time its mask code."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from edgefl import _native
from edgefl.cli.options import add_common, add_json

_OK, _INTEGRITY = 0, 6
_LANE_BITS = (16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpeed:
    """How fast one piece of mask code is here.

    Attributes:
        prg: The generator.
        backend: The code.
        lane_bits: Bits of a coordinate's lane, 16 or 32.
        ns_per_coordinate: Time of one coordinate of one mask, on one core.
    """

    prg: str
    backend: str
    lane_bits: int
    ns_per_coordinate: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    crypto = commands.add_parser(
        "crypto",
        help="run the standards' vectors, and time the mask code",
        description="Run the vectors of the standards (each also with a bit flipped, which must be "
        "noticed), compare all mask code of this processor with the portable one, and time it. "
        "Exit code 6 if a check fails.",
    )
    add_json(crypto)
    add_common(crypto)
    crypto.set_defaults(run=run_crypto)


def run_crypto(options: argparse.Namespace) -> int:
    """Run the checks and the timing, and show both."""
    checks = _native.selftest()
    failed = [name for name, is_passed in checks if not is_passed]
    speeds = measured_speeds()
    if options.json:
        report = {
            "vectors": {"passed": len(checks) - len(failed), "failed": len(failed)},
            "backends": [asdict(speed) for speed in speeds],
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        sys.stdout.write(f"{len(checks) - len(failed)} checks passed, {len(failed)} failed\n")
        _show_speeds(speeds)
    for name in failed:
        sys.stderr.write(f"edgefl: E-SELFTEST: expected {name}; found that it does not hold\n")
    return _INTEGRITY if failed else _OK


def measured_speeds() -> list[BackendSpeed]:
    """Time all mask code of this machine: by generator, the chosen code first."""
    return [
        BackendSpeed(
            prg=prg,
            backend=backend,
            lane_bits=lane_bits,
            ns_per_coordinate=round(_native.measure_backend(prg, backend, lane_bits), 4),
        )
        for prg, backends in _native.backends().items()
        for backend in backends
        for lane_bits in _LANE_BITS
    ]


def _show_speeds(speeds: list[BackendSpeed]) -> None:
    chosen = {prg: backends[0] for prg, backends in _native.backends().items()}
    sys.stdout.write("ns per coordinate and mask:\n")
    for speed in speeds:
        mark = "used" if chosen[speed.prg] == speed.backend else ""
        sys.stdout.write(
            f"  {speed.prg:<12} {speed.backend:<9} {speed.lane_bits}-bit lanes "
            f"{speed.ns_per_coordinate:8.3f}  {mark}".rstrip()
            + "\n"
        )
    has_hardware = "yes" if _native.has_aes_hardware() else "no"
    sys.stdout.write(f"AES hardware, declared to the fleet: {has_hardware}\n")
