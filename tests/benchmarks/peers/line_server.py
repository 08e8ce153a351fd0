"""Answer lines of JSON on stdin, one at a time, beside whatever else the event loop does."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | Mapping[str, Json] | None"
Answer = Callable[[str, dict[str, Json]], Awaitable[Mapping[str, Json]]]
"""Operation and arguments to an answer."""


async def serve_lines(greeting: Mapping[str, Json], answer: Answer) -> None:
    """Say the greeting, then answer until the pipe is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _say(greeting)
    while line := await reader.readline():
        request = json.loads(line)
        operation = str(request.pop("op"))
        try:
            _say(await answer(operation, request))
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            _say({"error": f"{type(error).__name__}: {error}"})


def _say(content: Mapping[str, Json]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()
