"""Sends of 4.x clients: frames with the codes 10, 310 and 320 to records.

`gather` makes one command of all sends to a topic that arrived in one chunk, so they share the cost
of a command; `Gathered` builds the answer to each frame.  Sends whose headers are alike come as
runs (`send_reader`, `send_runs`), and batches are read together.  Properties are stored as they
came, after a region.  Only the properties that the broker uses are looked for, in their stored
form: by their shape (`shapes`), or in full (`wanted`).

A batch (code 320, or the field `batch`) has its messages in the body (`batch`).  Each message has
its own due time; all messages are accepted together or refused together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.protocol.remoting.batch import Items
from horolog.protocol.remoting.batches import Batch, records_of_batches
from horolog.protocol.remoting.building import Building, Where, messages_of
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Gathered, Site
from horolog.protocol.remoting.request import integer
from horolog.protocol.remoting.send_header import Shared, names_of, shared_by
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.remoting.send_runs import read_run
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.wanted import (
    SendContext,
    Wanted,
    as_half_properties,
    cancelled_by,
    half_message,
    is_half,
)
from horolog.protocol.rocketmq.message import check_body
from horolog.protocol.rocketmq.record_columns import Host

_MANY = 96  # from so many messages on, reading batches as rows of bytes is faster
_GATHERED_MAX = 1_024  # messages of a command, unless one batch has more


class Cancel(NamedTuple):
    """A message that is sent to cancel another message, and is never stored (TIMER_DEL_UNIQKEY).

    due_ms  due time of the message to cancel; below 0: so many milliseconds from now
    """

    frame: Frame
    topic: str
    message_id: str
    due_ms: int


class _Gathering:
    """The commands of one chunk under construction; arguments as of `gather`.

    Consecutive batches to one topic are queued until `_add_queued`, and are read together.
    """

    def __init__(
        self,
        born_host: Host,
        site: Site,
        new_ids: Callable[[int], list[bytes]],
        shapes: Shapes,
        cancels: list[Cancel] | None,
    ) -> None:
        self._cancels = cancels
        self.refused: list[tuple[Frame, HorologError]] = []
        self._full: list[Building] = []
        self._building: dict[str, Building] = {}
        self._batches: list[Batch] = []
        self._queued = 0  # messages of `_batches`
        self._born_host = born_host
        self._levels = site.levels
        self._cluster = site.cluster.encode()
        self._new_ids = new_ids
        self._shapes = shapes

    def commands(self) -> list[Gathered]:
        """Return all finished commands."""
        self._add_queued()
        return [each.finish() for each in (*self._full, *self._building.values())]

    def _context(self, delayed_properties: Sequence[bytes]) -> SendContext:
        return SendContext(self._levels, delayed_properties, self._new_ids, self._cluster)

    def _building_for(self, shared: Shared, most: int) -> Building:
        """Return the command under construction that has room for `most` more messages."""
        topic = shared.topic
        taken = self._building.get(topic)
        if taken is not None and len(taken) + most > _GATHERED_MAX:
            self._full.append(self._building.pop(topic))
            taken = None
        if taken is None:
            taken = self._building[topic] = Building(topic, shared.name)
        return taken

    def take_run(self, run: Alike) -> bool:
        """Add a run; return False if a frame is bad: then each is to be added by itself."""
        self._add_queued()
        read = read_run(run, [self._born_host] * len(run), self._context, self._shapes)
        if read is None:
            return False
        shared, messages = read
        self._building_for(shared, len(run)).add_runs([run], messages)
        return True

    def take(self, frame: Frame) -> None:
        """Add a frame, or refuse it without any other effect."""
        try:
            self._take(frame)
        except HorologError as error:
            self.refused.append((frame, error.without_traceback()))

    def _take(self, frame: Frame) -> None:
        get = frame.fields.get
        topic, queue, sys_flag, born, flags, properties, attempts, batch = names_of(frame.code)
        texts = map(get, (topic, queue, sys_flag, flags, attempts, batch))
        shared = shared_by(frame.code, *texts)
        born_ms = integer(frame, born, 0)
        text = get(properties, "").encode()
        again = shared.attempts > 0  # sent again after it was consumed: its transaction is over
        if not again and (shared.is_half or (not shared.is_batch and is_half(text))):
            self._take_half(frame, shared, born_ms, as_half_properties(text, _producers_of(frame)))
            return
        if shared.is_batch:
            self._queue(Batch.of(frame, shared, born_ms))
            return
        self._add_queued()
        check_body(frame.body)
        if self._cancels is not None and not again:
            cancelled = cancelled_by(text, self._levels)
            if cancelled is not None:
                self._cancels.append(Cancel(frame, shared.topic, *cancelled))
                return
        context = self._context((shared.delayed_properties,))
        wanted = Wanted.of((text,), context._replace(takes_halves=True) if again else context)
        items = Items((shared.flag,), (frame.body,), (text,))
        self._add([Batch(frame, shared, born_ms, None, items)], wanted)

    def _take_half(self, frame: Frame, shared: Shared, born_ms: int, text: bytes) -> None:
        """Add a half message, which is a command of its own."""
        if shared.is_batch:
            raise half_message()
        check_body(frame.body)
        context = self._context((shared.delayed_properties,))._replace(takes_halves=True)
        wanted = Wanted.of((text,), context)
        where = Where(
            [shared.flag], [shared.queue_id], [shared.sys_flag], [shared.attempts], [born_ms]
        )
        half = Building(shared.topic, shared.name, is_half=True)
        half.add([frame], [1], messages_of([frame.body], where, wanted, [self._born_host]))
        self._full.append(half)

    def _queue(self, batch: Batch) -> None:
        count = batch.messages
        if self._batches and (
            self._batches[0].shared.topic != batch.shared.topic
            or self._queued + count > _GATHERED_MAX
        ):
            self._add_queued()
        self._batches.append(batch)
        self._queued += count

    def _add_queued(self) -> None:
        """Add the queued batches: together, or each by itself if one of them is unusual."""
        if not self._batches:
            return
        batches, queued = self._batches, self._queued
        self._batches, self._queued = [], 0
        if queued >= _MANY:
            made = records_of_batches(batches, self._born_host, self._context, self._shapes)
            if made is not None:
                self._building_for(batches[0].shared, queued).add_records(batches, *made)
                return
        batches = [batch.cut() for batch in batches]
        wanted = self._read_together(batches)
        if wanted is not None:
            self._add(batches, wanted)
            return
        for batch in batches:
            try:
                self._add([batch], self._read_together([batch]) or self._read_batch(batch))
            except HorologError as error:
                self.refused.append((batch.frame, error.without_traceback()))

    def _read_together(self, batches: Sequence[Batch]) -> Wanted | None:
        """Read the properties of all messages of batches; None if a batch is unusual."""
        if any(batch.items.fault or not batch.items.are_usual for batch in batches):
            return None
        texts = list(chain.from_iterable(batch.items.texts for batch in batches))
        delayed_properties: list[bytes] = []
        for batch in batches:
            delayed_properties += [batch.shared.delayed_properties] * len(batch.items.texts)
        return self._shapes.read(texts, self._context(delayed_properties))

    def _read_batch(self, batch: Batch) -> Wanted:
        """Read the properties message by message; the first bad message refuses the batch."""
        items = batch.items
        one = self._context((batch.shared.delayed_properties,))
        found = []
        for body, stored in zip(items.bodies, items.texts, strict=True):
            check_body(body)
            # Bad UTF-8 becomes U+FFFD, as in a header.
            text = stored if stored.isascii() else stored.decode("utf-8", "replace").encode()
            found.append(Wanted.of((text,), one))
        if items.fault is not None:
            raise items.fault
        self._shapes.missed(items.texts)
        return Wanted(*[[value for (value,) in column] for column in zip(*found, strict=True)])

    def _add(self, batches: Sequence[Batch], wanted: Wanted) -> None:
        """Add frames to one topic, with the meaning of their messages' properties."""
        where = Where([], [], [], [], [])
        bodies: list[bytes] = []
        counts = []
        for _, shared, born_ms, _, items in batches:
            count = len(items.bodies)
            counts.append(count)
            bodies += items.bodies
            where.flags.extend(items.flags)
            where.queue_ids.extend([shared.queue_id] * count)
            where.sys_flags.extend([shared.sys_flag] * count)
            where.attempts.extend([shared.attempts] * count)
            where.born_ms.extend([born_ms] * count)
        building = self._building_for(batches[0].shared, len(bodies))
        frames = [batch.frame for batch in batches]
        hosts = [self._born_host] * len(bodies)
        building.add(frames, counts, messages_of(bodies, where, wanted, hosts))


def gather(
    frames: Iterable[Frame | Alike],
    born_host: Host,
    site: Site,
    new_ids: Callable[[int], list[bytes]],
    shapes: Shapes,
    cancels: list[Cancel] | None = None,
) -> tuple[list[Gathered], list[tuple[Frame, HorologError]]]:
    """Return commands for sends that arrived together, one for each topic, and the refused frames.

    frames     with a code of SEND_CODES
    born_host  4 bytes of IPv4 (zeros if it is not known) and port of the client
    new_ids    returns ids for so many messages whose clients gave none; never the same id twice
    shapes     the shapes learned from the connection's messages
    cancels    list for sends that cancel another message; None: they are refused
    """
    gathering = _Gathering(born_host, site, new_ids, shapes, cancels)
    for each in frames:
        if not isinstance(each, Alike):
            gathering.take(each)
        elif not gathering.take_run(each):
            for frame in each.frames():
                gathering.take(frame)
    return gathering.commands(), gathering.refused


def _producers_of(frame: Frame) -> str:
    """Return the producer group of a frame."""
    return frame.fields.get("producerGroup" if frame.code == Code.SEND_MESSAGE else "a", "")
