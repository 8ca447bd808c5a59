"""Commands of adoptions: files of scheduled messages, committed as one transaction (app, version).

A writer begins a transaction, stages its files and commits them; `broker.adopt.adoptions` describes
the whole procedure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True, frozen=True)
class BeginAdoption:
    """Ask whether a transaction may be staged.  Result: `AdoptionBegun`."""

    app: str
    version: int
    topic: str
    fingerprint: str = ""


@dataclass(slots=True)
class AdoptionBegun:
    """What a writer of files must know about the topic.

    already  whether this version of the app, or a later one, is committed
    """

    already: bool
    topic: str
    topic_id: int
    queues: int
    max_due_ms: int  # the latest due time that is accepted at the moment


class FileRow(NamedTuple):
    """A file of a transaction, as in its manifest and in the ADOPT record (`delay.far.adopted`)."""

    name: str  # with `.run` in a manifest, as staged; without it in a record, as in `runs`
    rows: int
    bytes: int
    first_ms: int
    last_ms: int
    crc32: int  # of the footer


@dataclass(slots=True, frozen=True)
class Adopt:
    """Commit a transaction.  Result: `Adopted`.

    files     checked and durable under their names; they become part of the store unchanged
    records   instead of files, all messages of a small transaction (checked, SCHEDULED, in due
              order), appended like messages of a send
    topic_id  id of the topic at the time the messages were checked; a topic that was created with
              the same name since then has another id
    """

    app: str
    version: int
    topic: str
    files: list[FileRow] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    soon_bytes: int = 0  # bytes of the messages due within the next hour
    fingerprint: str = ""  # identifies the committed content; "": the writer has none
    topic_id: int = 0  # 0: there are neither files nor records


@dataclass(slots=True)
class Adopted:
    """The transaction is committed.

    already  whether it was committed before this command, which then changed nothing
    """

    already: bool
    rows: int = 0
    files: int = 0
    position: int = -1  # log position of its ADOPT record: the origin of all rows


@dataclass(slots=True, frozen=True)
class DescribeAdoption:
    """Ask for the newest committed version of an app.  Result: `AdoptionState`."""

    app: str


class AdoptionState(NamedTuple):
    """The highest committed version of an app (−1: none), and the fingerprint of that version."""

    version: int
    fingerprint: str


AdoptionCommand = BeginAdoption | Adopt | DescribeAdoption
