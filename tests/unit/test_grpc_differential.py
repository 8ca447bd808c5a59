"""grpcio's client sees the same of our door and of grpcio's own server, whatever it asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest
import toy_service
from toy_service import Waits, path

SIZES = (0, 1, 5, 200, 4_096, 16_379, 16_384, 65_530, 65_535, 70_000, 300_000)
SENTENCES = (
    "",
    "plain",
    'it\'s 100 % "quoted" & <more>',
    "Überlänge, 消息, \U0001f4ee",
    "two\nlines\t",
)
Server = Callable[[], AbstractAsyncContextManager[tuple[int, Waits]]]
Story = list[list["Step"]]


class Step(NamedTuple):
    """One call: what is asked, and how."""

    method: str
    message: bytes = b""
    said: tuple[bytes, ...] = ()
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    gzip: bool = False
    timeout_s: float | None = None
    cancel_after: int = -1  # messages of a Talk or a Many; of a Wait at once


def _metadata(random: Random) -> tuple[tuple[str, str | bytes], ...]:
    found: list[tuple[str, str | bytes]] = []
    for name, value in (
        ("x-one", f"value {random.randrange(4)}"),
        ("x-two", "a:b;c,d=" * random.randrange(4)),
        ("x-long", "l" * random.choice((1, 200, 3_000))),
        ("x-empty", ""),
        ("x-bytes-bin", random.randbytes(random.randrange(60))),
    ):
        if random.random() < 0.5:
            found.append((name, value))
    random.shuffle(found)
    return tuple(found)


def _step(random: Random) -> Step:
    size = random.choice(SIZES)
    status = random.choice((0, 0, 0, 3, 5, 8, 13, 14))
    more: dict[str, Any] = {
        "metadata": _metadata(random),
        "gzip": random.random() < 0.3,
        "timeout_s": random.choice((None, 20.0)),
    }
    match random.choice(
        ("Echo", "Echo", "Echo", "Fail", "Many", "Many", "Talk", "Talk", "Wait", "None")
    ):
        case "Echo":
            return Step("Echo", random.randbytes(size), **more)
        case "Fail":
            why = random.choice(SENTENCES)
            return Step("Fail", json.dumps([status or 2, why]).encode(), **more)
        case "Many":
            count = random.choice((0, 1, 2, 30)) if size < 70_000 else random.choice((1, 4))
            asked = json.dumps([count, size, status, random.choice(SENTENCES)]).encode()
            return Step("Many", asked, cancel_after=random.choice((-1, -1, count // 2)), **more)
        case "Talk":
            said = [
                random.randbytes(random.choice(SIZES[:-1])).replace(b"end", b"")
                for _ in range(random.randrange(5))
            ]
            if random.random() < 0.3:
                said.append(b"end%02d" % status)
            return Step(
                "Talk", said=tuple(said), cancel_after=random.choice((-1, -1, len(said))), **more
            )
        case "Wait":
            deadline = random.random() < 0.5
            more["timeout_s"] = 0.05 if deadline else None
            return Step("Wait", b"?", cancel_after=-1 if deadline else 0, **more)
    return Step("Nothing", b"?", **more)


def story_of(seed: int) -> Story:
    """Groups of calls; those of a group are under way together."""
    random = Random(seed)
    return [[_step(random) for _ in range(random.choice((1, 1, 5, 40)))] for _ in range(6)]


async def _unary(
    channel: grpc.aio.Channel, step: Step, more: dict[str, Any], seen: list[Any]
) -> None:
    call = channel.unary_unary(path(step.method))(step.message, **more)
    seen.append(await call)


async def _many(
    channel: grpc.aio.Channel, step: Step, more: dict[str, Any], seen: list[Any]
) -> None:
    call = channel.unary_stream(path("Many"))(step.message, **more)
    async for message in call:
        seen.append(message)
        if len(seen) == step.cancel_after:
            call.cancel()


async def _talk(
    channel: grpc.aio.Channel, step: Step, more: dict[str, Any], seen: list[Any]
) -> None:
    call = channel.stream_stream(path("Talk"))(**more)
    for message in step.said:
        await call.write(message)
        answer = await call.read()
        if answer is grpc.aio.EOF:
            break
        seen.append(answer)
        if len(seen) == step.cancel_after:
            call.cancel()
    else:
        await call.done_writing()
        while (answer := await call.read()) is not grpc.aio.EOF:
            seen.append(answer)
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, grpc.aio.Metadata(), grpc.aio.Metadata(), await call.details()
        )


async def answer_to(channel: grpc.aio.Channel, step: Step, waits: Waits) -> tuple[Any, ...]:
    """What the client sees of one call."""
    more = {
        "metadata": step.metadata,
        "timeout": step.timeout_s,
        "compression": grpc.Compression.Gzip if step.gzip else None,
    }
    if step.method == "Wait" and step.timeout_s is None:
        call = channel.unary_unary(path("Wait"))(step.message, **more)
        await waits.arrived.acquire()
        call.cancel()
        return ("Wait", await call.code())
    run = {"Many": _many, "Talk": _talk}.get(step.method, _unary)
    seen: list[Any] = []
    try:
        await run(channel, step, more, seen)
    except grpc.aio.AioRpcError as error:
        code = error.code()
        # Else the client or the server's library writes it
        by_server = step.method in ("Fail", "Many", "Talk")
        return (step.method, code, error.details() if by_server else None, *seen)
    except asyncio.CancelledError:
        return (step.method, "cancelled", *seen)
    return (step.method, "ok", *seen)


async def hear(server: Server, story: Story) -> list[list[tuple[Any, ...]]]:
    """The whole story; no call may be left with the server whose caller has gone."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with (
        server() as (port, waits),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel,
    ):
        await channel.channel_ready()
        heard = []
        for group in story:
            heard.append(await asyncio.gather(*(answer_to(channel, step, waits) for step in group)))
            await waits.until_none()
        return heard


def compare(seed: int) -> None:
    story = story_of(seed)

    async def both() -> None:
        mine = await hear(toy_service.ours, story)
        yours = await hear(toy_service.theirs, story)
        for number, (group, seen, wanted) in enumerate(zip(story, mine, yours, strict=True)):
            for step, one, other in zip(group, seen, wanted, strict=True):
                assert one == other, f"seed {seed}, group {number}, {step!r:.300}"

    asyncio.run(asyncio.wait_for(both(), 120))


@pytest.mark.parametrize("seed", range(12))
def test_a_client_sees_the_same_of_both_servers(seed) -> None:
    compare(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_a_client_sees_the_same_of_both_servers_also_in_long_runs(seed) -> None:
    compare(seed)
