"""Runs of sends: of one shape, bounded, in their place; and what has no shape comes alone."""

from __future__ import annotations

import itertools
import weakref

import pytest
from remoting_sends import batch_frame, item
from tests.unit.test_remoting_shapes import PEER, SITE, framed, java, read, taught

from horolog import limits
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.header_shapes import HeaderShape
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.send_reader import RUN_MAX, Alike, SendReader
from horolog.protocol.remoting.send_runs import gather_alike
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.transaction_commands import SendHalf


def topics_of(found: list[Frame | Alike]) -> list[tuple[str, int]]:
    """The topic of each run, and how many sends it has."""
    assert all(isinstance(each, Alike) for each in found)
    return [(each.sample.fields["b"], len(each)) for each in found if isinstance(each, Alike)]


def test_runs_are_of_one_shape_each() -> None:
    reader = SendReader()
    for topic in "tu" * 256:  # until both are known
        reader.receive_alike(framed(java(1, "", b=topic)))
    for topics in ("ttuut", "tut", "uuut", "tuuu"):  # together, and one by one
        rows = [java(n, f"KEYS\x01k{n}\x02", b=topic) for n, topic in enumerate(topics)]
        chunk = b"".join(map(framed, rows))
        found = reader.receive_alike(chunk)
        groups = itertools.groupby(topics)
        assert topics_of(found) == [(topic, len(list(group))) for topic, group in groups]
        assert read(lambda _, found=found: found, b"") == Reader().receive(chunk)


def test_a_run_follows_one_of_its_own_shape_alone_and_not_for_ever() -> None:
    def run(topic: str, count: int) -> Alike:
        chunk = b"".join(framed(java(n, "", b=topic)) for n in range(count))
        (found,) = taught(java(1, "", b=topic)).receive_alike(chunk)
        assert isinstance(found, Alike)
        return found

    last = run("t", RUN_MAX - 2)
    assert not run("u", 1).try_append_to(last)
    assert not run("t", 3).try_append_to(last)
    assert not run("t", 1).try_append_to(last.frames()[0])
    assert len(last) == RUN_MAX - 2
    assert run("t", 2).try_append_to(last)
    assert len(last) == len(last.frames()) == RUN_MAX


def test_of_many_shapes_a_bounded_count_is_kept() -> None:
    reader = SendReader()
    for topic in map(str, range(2 * limits.SHAPES_MAX)):
        send = framed(java(1, "", b=topic))
        for _ in range(
            128
        ):  # no more, for what was read by a shape before says that they are of use
            reader.receive_alike(send)
        assert topics_of(reader.receive_alike(send * 1_024))[0][0] == topic
        reader.check_invariants()


@pytest.mark.parametrize(
    "header",
    [
        java(1, "", m="true"),  # a batch: its messages are in its body
        java(1, "", b="%RETRY%g"),
        java(1, "").replace(b'"flag":0', b'"flag":1'),  # an answer
        java(1, "").replace(b'"e":"1"', b'"e":"1","e":"2"'),
        java(1, "").replace(b'"e":"1"', rb'"e":"1","\u0065":"2"'),
        java(1, "").replace(b'"flag":0', b'"flag":0,"more":{"x":"1"}'),
        java(1, "").replace(b'"i":""', b'"x":""'),
    ],
)
def test_what_says_more_than_a_send_of_one_message_has_no_shape(header: bytes) -> None:
    found = taught(header).receive_alike(framed(header))
    assert found == Reader().receive(framed(header))
    assert isinstance(found[0], Frame)


def test_of_the_shapes_of_all_connections_a_bounded_count_is_kept() -> None:
    met = []
    for topic in range(2_000):
        header = java(1, "", b=f"topic{topic}")
        (frame,) = Reader().receive(framed(header))
        shape = HeaderShape.of(header, frame)
        assert shape is HeaderShape.of(header, frame)
        met.append(weakref.ref(shape))
        del shape
    assert sum(each() is not None for each in met) <= 512


def test_a_batch_that_comes_before_a_run_is_stored_before_it() -> None:
    chunk = b"".join(framed(java(n, f"UNIQ_KEY\x01run{n}\x02")) for n in range(4))
    (run,) = taught(java(1, "")).receive_alike(chunk)
    assert isinstance(run, Alike)
    batches = [batch_frame([item({"UNIQ_KEY": f"batch{n}"})]) for n in range(2)]
    (gathered,), _ = gather(
        [batches[0], run, batches[1]], PEER, SITE, lambda n: [b""] * n, Shapes()
    )
    names = [b"batch0", b"run0", b"run1", b"run2", b"run3", b"batch1"]
    assert gathered.ids == names
    assert [each.frame.opaque for each in gathered.requests] == [1, 0, 1, 2, 3, 1]


def test_a_run_of_half_messages_is_visible_to_nobody() -> None:
    chunk = b"".join(framed(java(n, f"UNIQ_KEY\x01A{n}\x02", f="4")) for n in range(4))
    (run,) = taught(java(1, "", f="4")).receive_alike(chunk)
    assert isinstance(run, Alike)
    found, refused = gather([run], PEER, SITE, lambda n: [b""] * n, Shapes())
    assert not refused
    assert [type(each.command) for each in found] == [SendHalf] * 4
    assert gather_alike([run, run], [PEER] * 2, SITE, lambda n: [b""] * n, Shapes()) is None
