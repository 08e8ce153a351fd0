"""`edgefl task merge`: one model from the models of several gateways."""

import argparse
import json
import sys
from pathlib import Path

from edgefl.cli.options import add_common, add_json
from edgefl.errors import EnvironmentProblem


def add_merge(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    merge = commands.add_parser(
        "merge",
        help="average the models of several gateways",
        description="Average what a task has become on several gateways, each of which has its "
        "own shard of the fleet, weighted by their cohorts. The result is a bundle for the next "
        "task on each of them (docs/operations.md).",
    )
    merge.add_argument("name", help="the task's name, the same on all")
    merge.add_argument(
        "--shard",
        type=Path,
        action="append",
        required=True,
        metavar="STATE",
        help="a gateway's folder, or a copy of its folder tasks/NAME in one; repeated for each",
    )
    merge.add_argument("-o", "--output", type=Path, required=True, help="the bundle, a .efl file")
    add_json(merge)
    add_common(merge)
    merge.set_defaults(run=run_merge)


def run_merge(options: argparse.Namespace) -> int:
    """Write the merged bundle."""
    from broker.task_merge import merged_bundle, read_shard
    from edgefl.storage.files import replace_file

    shards = [read_shard(folder, options.name) for folder in options.shard]
    content = merged_bundle(shards)
    try:
        replace_file(options.output, content)
    except OSError as error:
        raise EnvironmentProblem(
            "E-OUT-FOLDER", f"{options.output} to be writable", error.strerror or str(error)
        ) from error
    weights = [shard.cohort for shard in shards]
    if options.json:
        document = {"output": str(options.output), "weights": weights, "rounds": shards[0].rounds}
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    sys.stdout.write(
        f"{options.output}: mean of {len(shards)} models after {shards[0].rounds} rounds, "
        f"weighted {' : '.join(map(str, weights))}\n"
    )
    return 0
