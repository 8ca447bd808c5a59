"""The setting `auto_create_topics`: an engine that creates a topic at its first use.

It stands between the door of 5.x clients and the engine.  Off by default, because a mistyped name
then becomes a topic instead of an error.  A topic made like this is NORMAL, as with RocketMQ; a
topic for scheduled messages is created on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUES_DEFAULT
from horolog.protocol.commands import Command, CreateTopic, DescribeTopic, SendMessages, TopicType
from horolog.server.running import GrpcEngine, OffloadMaker
from horolog.server.ticket import Ticket


class AutoCreate:
    """Passes all calls to `engine`; routes and sends of an unknown topic create the topic first."""

    def __init__(self, engine: GrpcEngine) -> None:
        self._engine = engine

    @property
    def offloads(self) -> OffloadMaker | None:
        """The engine's offloads."""
        return self._engine.offloads

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        return self._engine.clock

    @property
    def on_answers(self) -> list[Callable[[], None]]:
        """The engine's callbacks for answers that can be written."""
        return self._engine.on_answers

    def before_turn(self, ask: Callable[[], None]) -> None:
        """Pass the callback to the engine."""
        self._engine.before_turn(ask)

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Submit a command; create the topic and submit again if a route or send lacks it."""
        if isinstance(command, DescribeTopic | SendMessages):
            return asyncio.ensure_future(self._submit_again(command))
        return self._engine.submit(command)

    def ask(self, command: Command, then: Callable[[object], None]) -> Ticket:
        """Ask the engine; create the topic and ask again if a route or send lacks it."""
        if isinstance(command, DescribeTopic | SendMessages):
            then = partial(self._on_result, command, then)
        return self._engine.ask(command, then)

    def _on_result(
        self, command: DescribeTopic | SendMessages, then: Callable[[object], None], result: object
    ) -> None:
        if isinstance(result, HorologError) and result.code is ErrorCode.TOPIC_NOT_FOUND:
            again = asyncio.ensure_future(self._submit_again(command))
            again.add_done_callback(lambda done: then(done.exception() or done.result()))
        else:
            then(result)

    async def _submit_again(self, command: DescribeTopic | SendMessages) -> object:
        try:
            return await self._engine.submit(command)
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
        name = command.name if isinstance(command, DescribeTopic) else command.topic
        try:
            await self._engine.submit(CreateTopic(name, TopicType.NORMAL, QUEUES_DEFAULT))
        except HorologError as refused:
            if refused.code is not ErrorCode.TOPIC_EXISTS:
                raise  # TOPIC_EXISTS: another client was quicker, with other settings
        return await self._engine.submit(command)
