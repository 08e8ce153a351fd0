"""What the endpoint tells beside messages: merged, bounded, and never a surprise to the core."""

import asyncio
from types import SimpleNamespace
from typing import Any

from broker.endpoint_notices import MOST_REPORTS, REPORTS_WITHIN_S, EndpointNotices, Notice
from broker.events import Reported, UploadMoved

FIELDS = (
    *("client_id", "identity", "address", "old_address", "new_address"),
    *("topic", "reason", "code", "detail", "device", "transfer"),
)


def event(kind: str, **fields: Any) -> Any:
    return SimpleNamespace(kind=kind, **{**dict.fromkeys(FIELDS), **fields})


def read_all(notices: EndpointNotices) -> list[Notice]:
    async def read() -> list[Notice]:
        found: list[Notice] = []
        reading = asyncio.create_task(collect(found))
        await asyncio.sleep(0.01)
        reading.cancel()
        return found

    async def collect(found: list[Notice]) -> None:
        async for notice in notices.read():
            found.append(notice)  # noqa: PERF401 - what was found before the end counts

    return asyncio.run(read())


def test_reports_on_one_transfer_are_merged() -> None:
    notices = EndpointNotices()
    for _ in range(1000):
        notices.take(event("upload", device="d1", transfer="00" * 8, reason="progress"))
    notices.take(event("upload", device="d2", transfer="ff" * 8, reason="whole"))
    assert read_all(notices) == [
        UploadMoved(device="d1", transfer_id=bytes(8)),
        UploadMoved(device="d2", transfer_id=b"\xff" * 8),
    ]


def test_names_that_are_no_transfer_of_ours_are_left_out() -> None:
    notices = EndpointNotices()
    for transfer in ("", "00", "zz" * 8, "00" * 9, "0 " * 8):
        notices.take(event("upload", device="d1", transfer=transfer, reason="refused"))
    assert read_all(notices) == []


def test_troubles_are_reported_up_to_a_bound_and_counted_beyond() -> None:
    now_s = 0.0
    notices = EndpointNotices(lambda: now_s)
    for number in range(MOST_REPORTS + 7):
        notices.take(event("refused", address=f"192.0.2.1:{number}", code=0x87, detail="no"))
    notices.take(event("taken-over", identity="d1", old_address="a", new_address="b"))
    found = read_all(notices)
    assert len(found) == MOST_REPORTS + 1
    assert found[0] == Reported(
        kind="mqtt-refused", fields={"address": "192.0.2.1:0", "code": 0x87, "detail": "no"}
    )
    assert found[-1] == Reported(
        kind="mqtt-taken-over",
        fields={"identity": "d1", "old_address": "a", "new_address": "b"},
    )
    now_s = REPORTS_WITHIN_S
    notices.take(event("refused", code=0x87))
    assert read_all(notices) == [
        Reported(kind="mqtt-refused", fields={"more": 7, "within_s": 60}),
        Reported(kind="mqtt-refused", fields={"code": 0x87}),
    ]


def test_comings_and_goings_are_no_trouble() -> None:
    notices = EndpointNotices()
    for kind in ("connected", "disconnected"):
        notices.take(event(kind, client_id="d1"))
    assert read_all(notices) == []


def test_close_ends_reading() -> None:
    async def run() -> None:
        notices = EndpointNotices()

        async def read() -> int:
            return len([notice async for notice in notices.read()])

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        notices.close()
        async with asyncio.timeout(1):
            assert await reading == 0

    asyncio.run(run())
