"""Answers with messages that their caller never reads: other consumers get the messages soon."""

from __future__ import annotations

import gc
from typing import Any

import grpc
import pytest
from receiving_client import (
    RawClient,
    attempts,
    request,
    run,
    send,
    until,
    until_given_back,
    with_port,
)

from horolog.protocol.commands import Received
from horolog.protocol.http2.frames import Type
from horolog.server.grpc_clients import Clients
from horolog.server.grpc_consume import ConsumerCalls
from horolog.server.loop import Engine


@pytest.mark.parametrize("window", [0, 5, 300], ids=["nothing", "a bit", "a part"])
@pytest.mark.parametrize("how", ["cancel", "hang up"])
def test_messages_that_were_not_taken_over_are_for_others_soon(tmp_path, window, how) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, window) as client:
            client.receive(request())
            await until(engine, leased=3)
            assert await attempts(engine) == []
            if how == "cancel":
                client.cancel()
                await until_given_back(engine, 3)
                return
        await until_given_back(engine, 3)

    with_port(tmp_path, story)


def test_an_answer_that_waits_for_its_client_keeps_no_messages_beside_its_bytes(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, 0) as client:
            client.receive(request())
            await until(engine, leased=3)
            await engine.until_quiet()
            gc.collect()
            assert not [each for each in gc.get_objects() if isinstance(each, Received)]
            client.cancel()
            await until_given_back(engine, 3)

    with_port(tmp_path, story)


def test_messages_that_were_taken_over_late_stay_with_the_client(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, 5) as client:
            client.receive(request())
            await until(engine, leased=3)
            client.open_window(100_000)
            await client.answer()
        await engine.advance(1_000)
        assert await attempts(engine) == []

    with_port(tmp_path, story)


@pytest.mark.parametrize("window", [5, 65_535], ids=["late", "at once"])
@pytest.mark.parametrize("how", ["cancel", "hang up"])
def test_messages_of_an_answer_that_the_network_lost_are_for_others_soon(
    tmp_path, window, how
) -> None:
    """The answer is written, and nothing says that its caller has read it."""

    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port, window) as client:
            client.receive(request())
            await until(engine, leased=3)
            client.open_window(100_000)
            await client.answer(pong=False)
            await engine.advance(1_000)
            assert await attempts(engine) == [], "they may still be on their way"
            if how == "cancel":
                client.cancel()
                await until_given_back(engine, 3)
                return
        await until_given_back(engine, 3)

    with_port(tmp_path, story)


@pytest.mark.parametrize("how", ["cancel", "hang up"])
def test_messages_that_were_read_stay_with_a_client_that_goes_on(tmp_path, how) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 3)
        async with RawClient(port) as client:
            client.receive(request())
            await client.answer()
            if how == "cancel":
                client.cancel()
                client.ping()
                while Type.PING not in await client.kinds():
                    pass
        await engine.advance(1_000)
        assert await attempts(engine) == []

    with_port(tmp_path, story)


def test_a_client_that_goes_while_its_receive_is_carried_out(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        await send(engine, 2)
        async with RawClient(port) as client:
            client.receive(request())
            client.cancel()
            client.ping()
            while Type.PING not in await client.kinds():
                pass
        assert await attempts(engine) == [1, 1], "nobody was given a lease meanwhile"

    with_port(tmp_path, story)


class LateCall:
    """A call whose caller waits no longer when its answer comes, and has not said so."""

    header = staticmethod(lambda _name: "late")
    is_open = is_reading = True
    on_dropped = None

    def __init__(self) -> None:
        self.left_ms = [5_000, 0]
        self.status = -1

    def remaining_ms(self) -> int:
        return self.left_ms.pop(0)

    def begin_poll(self) -> None:
        """It may wait."""

    def fail(self, status: int, why: str) -> None:
        self.status = status


def test_a_receive_that_is_answered_after_its_deadline_is_returned(tmp_path) -> None:
    async def story(engine: Engine) -> None:
        await send(engine, 2)
        call: Any = LateCall()
        ConsumerCalls(engine, Clients()).receive(request(), call)
        await until_given_back(engine, 2)
        assert call.status == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]

    run(tmp_path, story)


def test_a_poll_whose_client_goes_takes_no_message(tmp_path) -> None:
    async def story(engine: Engine, port: int) -> None:
        async with RawClient(port) as client:
            client.receive(request(15))
            await until(engine, parked=1)
            client.cancel()
            await until(engine)
        await send(engine, 1)
        assert await attempts(engine) == [1]

    with_port(tmp_path, story)
