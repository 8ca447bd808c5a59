"""The remoting doors on a real engine, in a thread of their own, for tests with a synchronous client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.remoting_client import DEADLINE_S, RemotingClient

from horolog.broker.settings import ShardSettings
from horolog.protocol.commands import Command, CreateTopic, TopicType
from horolog.protocol.remoting.frame import Serializer
from horolog.server.open_broker import open_engine
from horolog.server.remoting.front import RemotingFront
from horolog.server.remoting.node import Node
from horolog.server.transaction_checks import TransactionChecks

SEGMENT = 16 << 20
STORE_HOST = b"\x7f\0\0\1" + (10_911).to_bytes(4, "big")


class RemotingDoor:
    """A broker that opens only its remoting doors; `engine` and `front` live in its thread."""

    def __init__(self, engine: Any, front: RemotingFront, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.front = front
        self.loop = loop
        self.namesrv = ("127.0.0.1", 0)
        self.broker = ("127.0.0.1", 0)

    def client(self, *, serializer: Serializer = Serializer.JSON) -> RemotingClient:
        """Open a connection to the broker's port."""
        return RemotingClient(self.broker, serializer=serializer)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine in the thread of the broker."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def within(self, look: Callable[[], Any]) -> Any:
        """Call a function in the thread of the broker."""

        async def call() -> Any:
            return look()

        return self.run(call())

    def submit(self, command: Command) -> Any:
        """Submit a command, and return its result."""

        async def ask() -> Any:
            return await self.engine.submit(command)

        return self.run(ask())

    def advance(self, by_ms: int) -> None:
        """Advance the clock."""
        self.run(self.engine.advance(by_ms))

    def create(self, name: str, kind: TopicType = TopicType.MIXED, queues: int = 4) -> str:
        """Create a topic; return its name."""
        self.submit(CreateTopic(name, kind, queues))
        return name


@contextmanager
def remoting_door(tmp_path: Path, **settings: Any) -> Iterator[RemotingDoor]:
    """Run a fresh broker with a simulated clock; settings are those of the front, and of the node."""
    names = [name for name in Node.__slots__ if name in settings and name != "broker_port"]
    node_settings = {name: settings.pop(name) for name in names}
    begun: list[RemotingDoor] = []
    ready, over = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def live() -> None:
        core = ShardSettings(store_host=STORE_HOST)
        engine = await open_engine(
            tmp_path / "data", clock="simulated", segment_bytes=SEGMENT, settings=core
        )
        node = Node(engine, store_host=STORE_HOST, **node_settings)
        front = RemotingFront(node, **settings)
        TransactionChecks(engine, [front.producers])
        door = RemotingDoor(engine, front, asyncio.get_running_loop())
        ports = await front.start()
        door.namesrv, door.broker = ("127.0.0.1", ports.namesrv), ("127.0.0.1", ports.broker)
        begun.append(door)
        ready.set()
        try:
            await over.wait()
        finally:
            await front.stop(0)
            await engine.stop()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(DEADLINE_S)
    if failed:
        raise failed[0]
    try:
        yield begun[0]
    finally:
        begun[0].loop.call_soon_threadsafe(over.set)
        thread.join(DEADLINE_S)
    if failed:
        raise failed[0]
    assert not thread.is_alive()
