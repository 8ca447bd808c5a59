"""Reader of a connection's sends: single frames, and runs of sends that are alike.

A run of sends whose headers share a shape (`header_shapes`) is one object, `Alike`.  It is turned
into single frames only where something is wrong with one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeGuard

from horolog.limits import SHAPE_TEXT_MAX, SHAPES_MAX
from horolog.protocol.remoting.frame import Frame, FrameFault
from horolog.protocol.remoting.frame_reader import Reader, read_frame
from horolog.protocol.remoting.header_shapes import FIELDS, Columns, HeaderShape, Values
from horolog.protocol.remoting.shapes import Pace

RUN_MAX = 256  # frames
_FEW = 4  # with fewer frames in a chunk, reading them one by one is faster

Cut = tuple[int, int, int, int]  # as of `Reader.cut`


class Alike:
    """A run: consecutive sends whose headers share a shape.

    columns  the values that differ; lists that only `add` changes
    bodies   body of each send
    """

    __slots__ = ("bodies", "columns", "shape")

    def __init__(self, shape: HeaderShape) -> None:
        self.shape = shape
        self.columns = Columns([], [], [], [], [])
        self.bodies: list[bytes] = []

    def __len__(self) -> int:
        return len(self.bodies)

    def add(self, columns: Columns, bodies: Sequence[bytes]) -> None:
        """Add sends of the same shape."""
        for column, more in zip(self.columns, columns, strict=True):
            assert isinstance(column, list)
            column += more
        self.bodies += bodies

    def try_append_to(self, last: Frame | Alike) -> bool:
        """Append this run to `last` if its shape and length allow that; return whether they do."""
        if not _has_room(last, self.shape, len(self)):
            return False
        last.add(self.columns, self.bodies)
        return True

    @property
    def sample(self) -> Frame:
        """A header of the shape, for the fields that all share: code, language, version, flag."""
        return self.shape.sample

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(map(len, self.bodies))

    def signed(self) -> list[bytes]:
        """Return the signed text of each send, body included."""
        signed = self.shape.signed
        rows = zip(*self.columns[:4], strict=True)
        return [signed(row) + body for row, body in zip(rows, self.bodies, strict=True)]

    def frames(self) -> list[Frame]:
        """Return each send as a frame."""
        rows = zip(*self.columns[:4], strict=True)
        return [
            self.shape.frame(*each)
            for each in zip(rows, self.bodies, self.columns.signatures, strict=True)
        ]


class SendReader(Reader):
    """Splits the bytes of a connection into frames, and runs of sends that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self._known: list[HeaderShape] = []
        self._pace = Pace()

    def receive_alike(self, chunk: bytes) -> list[Frame | Alike]:
        """Take bytes of the peer and return the frames and runs that they complete.

        FrameFault: the caller must end the connection.
        """
        chunk = self.join(chunk)
        cuts: list[Cut] = []
        fault: FrameFault | None = None
        try:
            cuts.extend(self.cut(chunk))
        except FrameFault as error:
            fault = error  # raised at the end, unless a frame before it is bad
        found: list[Frame | Alike] = []
        if not self._take_together(chunk, cuts, found):
            for cut in cuts:
                self._take(chunk, cut, found)
        if fault is not None:
            raise fault
        return found

    def _take_together(self, chunk: bytes, cuts: Sequence[Cut], found: list[Frame | Alike]) -> bool:
        """Read all headers at once by the last used shape; return False if that is not possible."""
        if len(cuts) < _FEW or not self._known or max(cuts)[0] > SHAPE_TEXT_MAX:
            return False
        shape = self._known[0]
        headers = [chunk[first:stop] for _, first, stop, _ in cuts]
        read = shape.read_many(headers)
        if read is None:
            return False
        columns, are_read = read
        bodies = [chunk[first:stop] for _, _, first, stop in cuts]
        at = 0
        for is_read, group in groupby(are_read):
            stop = at + len(list(group))
            if is_read:
                self._pace.matched += stop - at
                pieces = [slice(i, min(stop, i + RUN_MAX)) for i in range(at, stop, RUN_MAX)]
                for piece in pieces:
                    run = _run_of(found, shape, piece.stop - piece.start)
                    run.add(Columns(*[column[piece] for column in columns]), bodies[piece])
            else:
                for cut in cuts[at:stop]:
                    self._take(chunk, cut, found)
            at = stop
        return True

    def _take(self, chunk: bytes, cut: Cut, found: list[Frame | Alike]) -> None:
        """Read one frame, by its shape or in full."""
        mark, header_at, body_at, stop = cut
        body = chunk[body_at:stop]
        read = self._read(chunk, header_at, body_at) if mark <= SHAPE_TEXT_MAX else None
        if read is not None:
            values, signature = read
            opaque, queue, born, text = values
            columns = Columns((opaque,), (queue,), (born,), (text,), (signature,))
            _run_of(found, self._known[0], 1).add(columns, (body,))
            return
        header = chunk[header_at:body_at]
        frame = read_frame(mark >> 24, header, body)
        found.append(frame)
        if frame.code in FIELDS and mark <= SHAPE_TEXT_MAX and self._pace.missed(1):
            self._learn(header, frame)

    def _read(self, chunk: bytes, first: int, stop: int) -> tuple[Values, bytes] | None:
        """Read a JSON header by a known shape, which becomes the first; None if none matches."""
        for place, shape in enumerate(self._known):
            values = shape.read(chunk, first, stop)
            if values is not None:
                if place:
                    self._known.insert(0, self._known.pop(place))
                self._pace.matched += 1
                return values
        return None

    def _learn(self, header: bytes, frame: Frame) -> None:
        shape = HeaderShape.of(header, frame)
        if shape is not None:
            self._known.insert(0, shape)
            del self._known[SHAPES_MAX:]

    def check_invariants(self) -> None:
        """Check that the buffer and the known shapes are bounded."""
        super().check_invariants()
        assert len(self._known) <= SHAPES_MAX


def _run_of(found: list[Frame | Alike], shape: HeaderShape, count: int) -> Alike:
    """Return the last run if it has this shape and room for `count` more sends; else a new run."""
    if found and _has_room(last := found[-1], shape, count):
        return last
    run = Alike(shape)
    found.append(run)
    return run


def _has_room(last: Frame | Alike, shape: HeaderShape, count: int) -> TypeGuard[Alike]:
    """Return whether `last` is a run of this shape with room for `count` more sends."""
    return isinstance(last, Alike) and last.shape is shape and len(last) + count <= RUN_MAX
