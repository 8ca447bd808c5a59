"""Batches that arrived together, read as rows of bytes if all messages share size and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from horolog.limits import BODY_MAX
from horolog.protocol.remoting.batch import Form, Items, cut, form_of, rows_of
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.known_codes import code_of_group, code_of_tag
from horolog.protocol.remoting.send_header import Shared
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.text_rows import read_rows
from horolog.protocol.remoting.wanted import SendContext
from horolog.protocol.rocketmq.record_columns import RecordRows, records_of_rows
from horolog.protocol.send_commands import NewRecords

_NOTHING = Items((), (), ())


class Batch(NamedTuple):
    """A batch frame and its messages.

    form   the sizes that the messages seem to share; while it is set, `items` is empty
    """

    frame: Frame
    shared: Shared
    born_ms: int
    form: Form | None
    items: Items

    @classmethod
    def of(cls, frame: Frame, shared: Shared, born_ms: int) -> Batch:
        """Return the batch of a frame, split into messages only if they have different sizes."""
        form = form_of(frame.body)
        return cls(frame, shared, born_ms, form, _NOTHING if form else cut(frame.body))

    @property
    def messages(self) -> int:
        """Count of messages; with `form`, by the size of the body."""
        return len(self.frame.body) // self.form.size if self.form else len(self.items.bodies)

    def cut(self) -> Batch:
        """Return the batch with its messages split into `items`."""
        return self._replace(form=None, items=cut(self.frame.body)) if self.form else self


class MadeBatches(NamedTuple):
    """Records of batches, and the id of each message."""

    records: NewRecords
    ids: Sequence[bytes]


def records_of_batches(
    batches: Sequence[Batch],
    born_host: tuple[bytes, int],
    context_of: Callable[[Sequence[bytes]], SendContext],
    shapes: Shapes,
) -> MadeBatches | None:
    """Build the records of batches to one topic; None if they are unusual or not of one shape.

    context_of  returns the `SendContext` of messages, from the properties that each gets in addition
                if it is delayed
    """
    shared, form = batches[0].shared, batches[0].form
    if form is None or not 0 < form.body_size <= BODY_MAX:
        return None
    same = (form, shared.sys_flag, shared.attempts)
    if any((each.form, each.shared.sys_flag, each.shared.attempts) != same for each in batches):
        return None
    rows = rows_of([batch.frame.body for batch in batches], form)
    if rows is None:
        return None
    counts = [batch.messages for batch in batches]

    def of_each(values: Sequence[Any]) -> list[Any]:
        return list(chain.from_iterable(map(repeat, values, counts)))

    context = context_of(of_each([batch.shared.delayed_properties for batch in batches]))
    wanted = read_rows(rows.texts, context, shapes)
    if wanted is None:
        return None
    messages = RecordRows(
        rows.bodies,
        wanted.texts,
        wanted.ids,
        rows.flags,
        of_each([batch.shared.queue_id for batch in batches]),
        shared.sys_flag,
        shared.attempts,
        of_each([batch.born_ms for batch in batches]),
        wanted.keyed,
        [code_of_tag(tag) for tag in wanted.tags],
        [code_of_group(group) for group in wanted.groups],
        wanted.due_ms,
        wanted.lanes,
    )
    return MadeBatches(records_of_rows(shared.name, born_host, messages), wanted.ids)
