"""Serve a peer's measurements to another process: one JSON object a line, in and out.

The peers need environments of their own, so that each runs in a process that is asked for one
repetition at a time; who asks decides whose turn it is.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping

Json = dict[str, object]
Operation = Callable[[Json], Json]


def serve(operations: Mapping[str, Operation]) -> None:
    """Answer requests `{"op": name, ...}` from standard input until it ends.

    An answer is what the operation returns, or `{"error": text}`.

    Args:
        operations: What can be asked for, by name.
    """
    # Libraries that print must not get between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            answers.write(json.dumps(_answer(operations, json.loads(line))) + "\n")
            answers.flush()


def _answer(operations: Mapping[str, Operation], request: Json) -> Json:
    operation = operations.get(str(request.get("op")))
    if operation is None:
        return {"error": f"no operation {request.get('op')!r}"}
    try:
        return operation(request)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises belongs in the answer
        return {"error": f"{type(error).__name__}: {error}"}
