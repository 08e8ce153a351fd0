"""`edgefl secagg`: sizes of the neighbour graph, and what each protects against."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgefl.cli.options import HelpFormatter, add_common, add_json

if TYPE_CHECKING:
    from edgefl.protocol.sizes import GraphSizes

SEALED_SHARES_SIZE_BYTES = 120
"""Shares of both secrets for one neighbour: 80, a nonce of 24 and a tag of 16."""

_CLASSES = {
    "honest-but-curious": "HONEST_BUT_CURIOUS",
    "semi-malicious": "SEMI_MALICIOUS",
    "malicious": "MALICIOUS",
}
_THRESHOLD_MEANINGS = {
    "HONEST_BUT_CURIOUS": "shares that open a secret: more than corrupt neighbours hold",
    "SEMI_MALICIOUS": "shares that open a secret: false lists of drops do not open both",
    "MALICIOUS": "shares that open a secret: two survivor lists do not open both",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    sizes = commands.add_parser(
        "sizes",
        help="compute degree, thresholds, committee and window rule of a cohort",
        description="Compute what a plan for such a cohort would hold, and what each device "
        "recomputes from it: neighbours, shares that open a secret, signers of the survivor "
        "certificate, and survivors that every window of the ring must keep.",
        formatter_class=HelpFormatter,
    )
    sizes.add_argument("--cohort", type=int, required=True, help="devices in one round")
    sizes.add_argument(
        "--corrupt", type=float, default=0.05, help="fraction of them that helps the gateway"
    )
    sizes.add_argument(
        "--drop", type=float, default=0.1, help="fraction of them that may fail to answer"
    )
    sizes.add_argument(
        "--adversary",
        choices=tuple(_CLASSES),
        default="honest-but-curious",
        help="what the gateway is assumed to do",
    )
    sizes.add_argument(
        "--grinding-bits",
        type=int,
        default=0,
        help="a malicious gateway chooses among 2^this beacon values",
    )
    add_json(sizes)
    add_common(sizes)
    sizes.set_defaults(run=run_sizes)


def run_sizes(options: argparse.Namespace) -> int:
    """Compute and show the sizes."""
    from edgefl.protocol.reasons import AdversaryClass
    from edgefl.protocol.sizes import corrupt_of, devices_of, sizes_for_fractions

    adversary = AdversaryClass[_CLASSES[options.adversary]]
    sizes = sizes_for_fractions(
        options.cohort, options.corrupt, options.drop, adversary, options.grinding_bits
    )
    corrupt = corrupt_of(options.cohort, options.corrupt, adversary)
    dropped = devices_of(options.cohort, options.drop)
    if options.json:
        facts = {
            "cohort": sizes.cohort,
            "corrupt": corrupt,
            "dropped": dropped,
            "adversary": options.adversary,
            "grinding_bits": options.grinding_bits,
            "degree": sizes.degree,
            "complete": sizes.is_complete,
            "threshold": sizes.threshold,
            "committee": asdict(sizes.committee) if sizes.committee else None,
            "window": asdict(sizes.window) if sizes.window else None,
            "shares_size_bytes": sizes.degree * SEALED_SHARES_SIZE_BYTES,
        }
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    sys.stdout.write(
        f"{sizes.cohort} devices, {corrupt} of them corrupt, {dropped} dropping out, "
        f"{options.adversary} gateway:\n"
    )
    for name, value, meaning in _lines(sizes, adversary.name):
        sys.stdout.write(f"  {name:<10} {value:<12} {meaning}\n")
    return 0


def _lines(sizes: "GraphSizes", adversary: str) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of each size that there is."""
    kind = "every other device" if sizes.is_complete else "nearest on the beacon's ring"
    lines = [
        (
            "degree",
            str(sizes.degree),
            f"neighbours of each ({kind}), whose masks hide it",
        ),
        ("threshold", str(sizes.threshold), _THRESHOLD_MEANINGS[adversary]),
    ]
    if sizes.window:
        lines.append(
            (
                "window",
                f"{sizes.window.alive} of {sizes.window.positions}",
                "survivors in every run of the ring: no list cuts anybody off",
            )
        )
    if sizes.committee:
        lines.append(
            (
                "committee",
                f"{sizes.committee.threshold} of {sizes.committee.members}",
                "signatures that certify a survivor list: never two lists",
            )
        )
    size_bytes = sizes.degree * SEALED_SHARES_SIZE_BYTES
    lines.append(
        (
            "shares",
            f"{size_bytes} B",
            f"sealed by each device: {SEALED_SHARES_SIZE_BYTES} B for each neighbour",
        )
    )
    return lines
