"""What waits for a turn, and what a turn answers.

What waits while the disk stalls is bounded (`server.inputs`), and whoever settles something gets in.  Answers that are
ready are written before the turn goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horolog.broker.broker import Input
from horolog.broker.life.opening import ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import (
    INPUTS_BYTES_MAX,
    INPUTS_MAX,
    MIB,
    TURN_COMMANDS_MAX,
    UNSYNCED_BYTES_MAX,
)
from horolog.protocol.adoption_commands import Adopt
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    Command,
    CreateTopic,
    DescribeTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.server.inputs import Inputs
from horolog.server.link import PendingOutput
from horolog.server.loop import Engine
from horolog.testing.disk import FaultyDisk

ACK = Ack("g", "t", ["handle"])


def send(name: str, size: int = 100) -> SendMessages:
    return SendMessages("t", [encode(topic="t", body=bytes(size), message_id=name)])


def code(refusal: HorologError | None) -> ErrorCode | None:
    return refusal.code if refusal is not None else None


def test_places_are_bounded_and_some_are_kept_for_what_settles() -> None:
    inputs = Inputs(count_max=3)

    def put(command: Command) -> ErrorCode | None:
        return code(inputs.put(Input(object(), command)))

    assert [put(DescribeTopic("t")) for _ in range(4)] == [None] * 3 + [ErrorCode.TOO_MANY_REQUESTS]
    assert [put(ACK) for _ in range(4)] == [None] * 3 + [ErrorCode.TOO_MANY_REQUESTS]
    assert put(CancelReceive(object())) is None
    assert len(inputs.take(4)) == 4
    assert put(DescribeTopic("t")) is ErrorCode.TOO_MANY_REQUESTS
    assert put(ACK) is None
    assert len(inputs.take(10)) == 4
    assert put(DescribeTopic("t")) is None


def test_a_receive_whose_caller_goes_while_it_waits_is_decided_by_nobody() -> None:
    inputs = Inputs()
    poll = Receive("g", "t", -1, "*", 1, 30_000, False, 10_000, "c")
    for token, command in (
        ("left", poll),
        ("stays", poll),
        ("told", poll),
        (0, CancelReceive("left")),
        (1, CancelReceive("told", answer=True)),
        (2, CancelReceive("was taken before")),
    ):
        assert inputs.put(Input(token, command)) is None
    assert [item.token for item in inputs.take(2)] == ["stays"]
    assert [item.token for item in inputs.take(9)] == ["told", 0, 1, 2]
    assert not inputs._gone


def test_messages_of_an_adoption_count_as_those_of_a_send() -> None:
    inputs = Inputs(bytes_max=100)
    assert inputs.put(Input(0, Adopt("app", 1, "t", records=[b"x" * 40, b"y" * 41]))) is None
    assert inputs.message_bytes == 81
    assert code(inputs.put(Input(1, send("m", 20)))) is ErrorCode.TOO_MANY_REQUESTS


def test_what_is_put_back_is_the_oldest_in_its_order() -> None:
    inputs = Inputs()
    for token, size in enumerate((1_000, 20, 3)):
        assert inputs.put(Input(token, send("m", size))) is None
    before = inputs.message_bytes
    inputs.put_back(inputs.take(2))
    assert inputs.message_bytes == before
    assert [item.token for item in inputs] == [0, 1, 2]
    (first,) = inputs.take(1)
    assert first.token == 0
    assert inputs.message_bytes < before - 1_000 + 1, "the size of the first is gone with it"


def test_bytes_are_bounded_but_one_request_of_any_size_is_taken() -> None:
    inputs = Inputs(bytes_max=10_000)

    def put(size: int) -> ErrorCode | None:
        return code(inputs.put(Input(object(), send("m", size))))

    assert put(20_000) is None
    assert put(10) is ErrorCode.TOO_MANY_REQUESTS
    assert inputs.put(Input(object(), ACK)) is None
    taken = inputs.take(1)
    inputs.put_back(taken)
    assert put(10) is ErrorCode.TOO_MANY_REQUESTS
    assert inputs.take(1) == taken
    assert put(4_000) is None
    assert put(5_000) is None
    assert put(4_000) is ErrorCode.TOO_MANY_REQUESTS
    inputs.clear()
    assert put(20_000) is None


async def with_engine(disk: FaultyDisk) -> Engine:
    opened = open_shard(
        disk, "shard-00", ShardMeta(1, 0, 16 * MIB), ShardSettings(), wall_ms=1_000, mono_ms=0
    )
    engine = Engine(opened, disk, SystemClock())
    await engine.start()
    await engine.submit(CreateTopic("t", TopicType.MIXED, 1))
    return engine


async def until_writing(engine: Engine) -> None:
    """Return when all that was asked is taken, and a write is under way."""
    while engine.inputs or not engine.log.is_busy:
        await asyncio.sleep(0)


def ends(futures: list[asyncio.Future[Any]]) -> list[ErrorCode | None]:
    """What those say that are refused at once."""
    return [
        code(error) if isinstance(error := future.exception(), HorologError) else None
        for future in futures
        if future.done()
    ]


@pytest.mark.parametrize("size", [MIB, 10], ids=["bodies", "requests"])
def test_a_disk_that_stalls_does_not_fill_memory(size: int) -> None:
    """Sends are refused at once, acks are taken; when the disk is back all that was taken is stored."""
    wanted = (INPUTS_BYTES_MAX + 4 * UNSYNCED_BYTES_MAX) // MIB if size == MIB else INPUTS_MAX + 99

    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        with disk.stalled("sync shard-00/log"):
            # Fill what may be appended while the disk is behind, one after the other, until turns wait.
            after = [engine.submit(send(f"b{n}", MIB)) for n in range(4)]
            for _ in range(8):
                await asyncio.sleep(0)
                after += [engine.submit(send(f"c{len(after)}{n}", MIB)) for n in range(4)]
            sent = [engine.submit(send(f"m{n}", size)) for n in range(wanted)]
            refused = ends(sent)
            assert set(refused) == {ErrorCode.TOO_MANY_REQUESTS}
            taken = wanted - len(refused)
            assert taken * size <= INPUTS_BYTES_MAX
            assert taken <= INPUTS_MAX
            acks = [engine.submit(ACK) for _ in range(100)]
            assert not ends(acks)
        await asyncio.gather(*acks, return_exceptions=True)
        answers = await asyncio.gather(*after, *sent, return_exceptions=True)
        stored = [answer for answer in answers if not isinstance(answer, HorologError)]
        assert len(stored) >= taken
        assert (await engine.submit(DescribeTopic("t"))).queue_offsets == [len(stored)]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 100))


def test_sends_wait_for_the_write_under_way_unless_they_are_many() -> None:
    """A turn costs as much for one as for two hundred, and none is answered before that write has ended."""

    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        with disk.stalled("sync shard-00/log"):
            first = engine.submit(send("first"))
            await until_writing(engine)
            few = [engine.submit(send(f"m{n}")) for n in range(5)]
            await asyncio.wait(few, timeout=0.05)
            assert len(engine.inputs) == 5
            many = engine.submit(send("many", 70_000))
            while engine.inputs:
                await asyncio.wait({many}, timeout=0.01)
            few.append(engine.submit(send("last")))
            assert not any(future.done() for future in (first, many, *few))
        await asyncio.gather(first, many, *few)
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_answers_of_a_write_are_given_and_written_before_the_next_turn_appends() -> None:
    async def run() -> None:
        engine = await with_engine(FaultyDisk())
        await engine.until_quiet()
        order: list[str] = []
        appends = engine.broker.finish_turn

        def finish_turn(*turn: Any) -> None:
            order.append("appends")
            appends(*turn)

        engine.broker.finish_turn = finish_turn  # type: ignore[method-assign]
        engine.on_answers.append(lambda: order.append("written"))
        engine.ask(send("m"), lambda _: order.append("answered"))
        await engine.until_quiet()
        assert order[:4] == ["appends", "answered", "written", "appends"]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_early_answers_bring_has_no_turn_before_the_write_that_this_turn_begins() -> None:
    """It waits for the end of that write: a turn of its own beside it would cost as much as one for all."""

    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        under_way: list[tuple[bool, int]] = []
        last = asyncio.get_running_loop().create_future()

        def look() -> None:
            under_way.append((engine.log.is_busy, len(engine.inputs)))

        def go_on(_: object) -> None:
            look()
            engine.ask(send("third"), last.set_result)
            asyncio.get_running_loop().call_soon(look)

        with disk.stalled("sync shard-00/log"):
            engine.ask(send("first"), go_on)
            await until_writing(engine)
            second = engine.submit(send("second"))
        await asyncio.gather(second, last)
        assert under_way == [(False, 0), (True, 1)], "answered before the turn's write, asked in it"
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_doors_have_gathered_is_asked_at_the_end_of_the_write_under_way() -> None:
    """In the turn that this brings, with all of them; if the write takes long, before it."""

    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        await engine.until_quiet()
        asked: list[str] = []
        answers: list[asyncio.Future[Any]] = []

        def gather(name: str) -> None:
            def ask() -> None:
                asked.append(name)
                answers.append(engine.submit(send(name)))

            engine.before_turn(ask)

        gather("at once")
        assert not asked
        await asyncio.sleep(0)
        assert asked == ["at once"]
        await engine.until_quiet()
        with disk.stalled("sync shard-00/log"):
            first = engine.submit(send("first"))
            await until_writing(engine)
            turns = sum(engine.meters.commands.counts)
            gather("slow")
            assert len(asked) == 1
            while len(asked) == 1:  # the write does not end
                await asyncio.wait({first}, timeout=0.01)
            assert not first.done()
            assert sum(engine.meters.commands.counts) == turns, "nobody could be answered by one"
            turns = sum(engine.meters.commands.counts)
            gather("a")
            gather("b")
        await first
        assert asked == ["at once", "slow", "a", "b"]
        await asyncio.gather(*answers)
        assert sum(engine.meters.commands.counts) - turns <= 3, "one for the end of each write"
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_door_whose_sends_cannot_be_asked_keeps_no_other_from_a_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        engine = await with_engine(FaultyDisk())
        answer: list[asyncio.Future[Any]] = []

        def broken() -> None:
            raise RuntimeError("a mistake of ours")

        engine.before_turn(broken)
        engine.before_turn(lambda: answer.append(engine.submit(send("m"))))
        await engine.until_quiet()
        assert await answer[0]
        await engine.stop()
        refusals: list[Any] = []
        engine.before_turn(lambda: refusals.append(engine.submit(send("late"))))
        await asyncio.sleep(0)
        with pytest.raises(HorologError, match="stopping"):
            await refusals[0]

    asyncio.run(asyncio.wait_for(run(), 30))
    assert "a mistake of ours" in caplog.text


def test_what_doors_have_gathered_when_the_disk_fails_is_refused() -> None:
    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        await engine.until_quiet()
        found: list[object] = []
        with disk.stalled("sync shard-00/log"):
            engine.ask(send("first"), found.append)
            await until_writing(engine)
            engine.ask(send("waits"), found.append)
            engine.before_turn(lambda: engine.ask(send("second"), found.append))
            engine._fail(HorologError(ErrorCode.DISK_FAILED, "gone"))
            await asyncio.sleep(0)
        assert [code(each) for each in found] == [ErrorCode.DISK_FAILED] * 3  # type: ignore[arg-type]
        while engine.log.is_busy:
            await asyncio.sleep(0)
        engine.before_turn(lambda: engine.ask(send("third"), found.append))
        while len(found) == 3:  # there are no more turns
            await asyncio.sleep(0)
        assert code(found[3]) is ErrorCode.DISK_FAILED  # type: ignore[arg-type]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_commands_of_a_turn_that_fails_get_the_error() -> None:
    async def run() -> None:
        engine = await with_engine(FaultyDisk())
        await engine.until_quiet()

        def finish_turn(*_: Any) -> None:
            raise RuntimeError("a mistake of ours")

        engine.broker.finish_turn = finish_turn  # type: ignore[method-assign]
        sent = [engine.submit(send(name)) for name in ("a", "b")]
        found = await asyncio.gather(*sent, return_exceptions=True)
        assert [code(each) for each in found] == [ErrorCode.DISK_FAILED] * 2  # type: ignore[arg-type]
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_one_turn_cannot_take_has_another_one_at_once() -> None:
    """Also where nothing is appended, whose write would bring one."""

    async def run() -> None:
        engine = await with_engine(FaultyDisk())
        await engine.until_quiet()
        asked = [engine.submit(DescribeTopic("t")) for _ in range(2 * TURN_COMMANDS_MAX)]
        while len(engine.inputs) == len(asked):
            await asyncio.sleep(0)
        assert len(engine.inputs) == TURN_COMMANDS_MAX
        assert engine.next_turn.is_asked
        await asyncio.gather(*asked)
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_no_turn_takes_more_while_too_much_waits_for_the_disk() -> None:
    async def run() -> None:
        disk = FaultyDisk()
        engine = await with_engine(disk)
        sent: list[asyncio.Future[Any]] = []
        with disk.stalled("sync shard-00/log"):
            while not engine.log.is_full:
                sent.append(engine.submit(send(f"m{len(sent)}", MIB)))
                await asyncio.sleep(0)
            while engine.next_turn.is_asked:
                await asyncio.sleep(0)
            waiting = len(engine.inputs)
            sent.append(engine.submit(send("last", MIB)))
            assert engine.next_turn.is_asked
            while engine.next_turn.is_asked:
                await asyncio.sleep(0)
            assert len(engine.inputs) == waiting + 1
        await asyncio.gather(*sent)
        await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_connection_that_cannot_be_written_to_keeps_nobody_elses_answers() -> None:
    class Unwritten:
        awaits_flush = True

        def __init__(self, written: list[str], fault: str = "") -> None:
            self._written, self._fault = written, fault

        def flush(self) -> None:
            self.awaits_flush = False
            if self._fault:
                raise RuntimeError(self._fault)
            self._written.append("written")

    async def run() -> None:
        written: list[str] = []
        pending = PendingOutput()
        links = [Unwritten(written), Unwritten(written, "a mistake of ours"), Unwritten(written)]
        for link in links:
            pending.add(link)  # type: ignore[arg-type]
        pending.flush()
        assert len(written) == 2
        pending.add(links[0])  # type: ignore[arg-type]  # it was written meanwhile
        links[2].awaits_flush = True
        pending.add(links[2])  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(written) == 3, "at the latest after this turn of the loop"

    asyncio.run(run())
