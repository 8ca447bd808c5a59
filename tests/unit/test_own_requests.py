"""Requests of the broker to a client: nothing of one is kept once nobody waits for its answer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame, Serializer
from horolog.server.remoting.own_requests import OwnRequests


@pytest.mark.parametrize(
    "end",
    [
        lambda own, answer: own.take_answer(Frame(0, 1)),
        lambda own, answer: answer.cancel(),
        lambda own, answer: own.end(),
    ],
    ids=["answered", "cancelled", "the client leaves"],
)
def test_an_answer_that_nobody_waits_for_is_not_kept(
    end: Callable[[OwnRequests, asyncio.Future[Frame]], object],
) -> None:
    async def ask() -> None:
        own = OwnRequests()
        own.encode(Code.GET_CONSUMER_RUNNING_INFO, {}, b"", Serializer.JSON)
        answer = own.wait(asyncio.get_running_loop(), 60)
        end(own, answer)
        await asyncio.sleep(0)  # callbacks of the future run
        gone = weakref.ref(answer)
        del answer
        gc.collect()
        assert gone() is None

    asyncio.run(ask())
