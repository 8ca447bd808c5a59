"""`Engine.ask`: a command's result goes to a callback, once, and a bad callback costs nobody else's."""

from __future__ import annotations

import asyncio
import gc
import weakref

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, DescribeTopic, TopicType, TopicView
from horolog.server.open_broker import open_engine
from horolog.server.ticket import Ticket

SEGMENT = 16 << 20


def run(tmp_path, story) -> None:
    async def report() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=SEGMENT)
        try:
            await story(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(report(), 30))


def test_results_and_refusals_come_in_order_also_after_a_broken_callback(tmp_path, caplog) -> None:
    async def story(engine) -> None:
        got: list[object] = []
        last = asyncio.get_running_loop().create_future()

        def broken(_result: object) -> None:
            raise RuntimeError("not told")

        engine.ask(CreateTopic("t", TopicType.NORMAL, 2), broken)
        engine.ask(DescribeTopic("t"), got.append)
        engine.ask(DescribeTopic("unknown"), got.append)
        ticket = engine.ask(DescribeTopic("t"), last.set_result)
        assert not ticket.over
        assert not got, "nothing is told before the call has returned"
        assert isinstance(await last, TopicView)
        assert ticket.over
        assert isinstance(got[0], TopicView)
        assert isinstance(got[1], HorologError)
        assert got[1].code is ErrorCode.TOPIC_NOT_FOUND
        assert "not told" in caplog.text

    run(tmp_path, story)


def test_refusals_of_a_stopping_broker_are_logged_later_as_well(tmp_path) -> None:
    async def story(engine) -> None:
        engine._stopping = True
        refused = asyncio.get_running_loop().create_future()
        ticket = engine.ask(DescribeTopic("t"), refused.set_result)
        assert not ticket.over
        assert (await refused).code is ErrorCode.INTERNAL
        engine._stopping = False

    run(tmp_path, story)


def test_a_ticket_is_settled_once() -> None:
    got: list[object] = []
    ticket = Ticket(got.append)
    ticket.settle(1)
    ticket.settle(2)
    assert got == [1]
    assert ticket.over


def test_a_settled_ticket_keeps_nobody() -> None:
    class Caller:
        def __init__(self) -> None:
            self.ticket = Ticket(self.come)

        def come(self, result: object) -> None: ...

    caller = Caller()
    kept = weakref.ref(caller)
    caller.ticket.settle(1)
    gc.disable()
    try:
        del caller
        assert kept() is None, "without a look for garbage"
    finally:
        gc.enable()
