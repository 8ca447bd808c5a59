"""Commands of adoptions: whole files of scheduled messages, committed as one transaction (app, version).

A transaction is begun, its files are staged and committed; what all of it does stands in `broker.adopt.adoptions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True, frozen=True)
class BeginAdoption:
    """Ask whether a transaction may be staged; gives `AdoptionBegun`."""

    app: str
    version: int
    topic: str
    fingerprint: str = ""


@dataclass(slots=True)
class AdoptionBegun:
    """What a writer of files must know; `already`: that version or a later one is committed."""

    already: bool
    topic: str
    topic_id: int
    queues: int
    max_due_ms: int  # the latest due time that is taken just now


class FileRow(NamedTuple):
    """What is said of one file of a transaction: by its manifest, and by the ADOPT record (`delay.far.adopted`)."""

    name: str  # in a manifest with `.run`, as it was staged; in a record without, as it stands in `runs`
    rows: int
    bytes: int
    first_ms: int
    last_ms: int
    crc32: int  # of its footer


@dataclass(slots=True, frozen=True)
class Adopt:
    """Commit a transaction; gives `Adopted`.

    files    checked and durable under their names; they become part of the store as they are
    records  instead of files, all messages of a small transaction (checked, SCHEDULED, in due order): they are
             appended like those of a send
    topic_id  of the topic that they are of; one of the same name may have been made since they were checked
    """

    app: str
    version: int
    topic: str
    files: list[FileRow] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    soon_bytes: int = 0  # of what is due within the next hour
    fingerprint: str = ""  # of what is committed; "": its writer has none
    topic_id: int = 0  # 0: there is nothing that is of any


@dataclass(slots=True)
class Adopted:
    """A transaction is committed; `already`: it was before, and nothing was changed."""

    already: bool
    rows: int = 0
    files: int = 0
    position: int = -1  # log position of its ADOPT record: the origin of all rows


@dataclass(slots=True, frozen=True)
class DescribeAdoption:
    """Gives `AdoptionState`."""

    app: str


class AdoptionState(NamedTuple):
    """The highest committed version of an app (−1: none), and with which fingerprint it was committed."""

    version: int
    fingerprint: str


AdoptionCommand = BeginAdoption | Adopt | DescribeAdoption
