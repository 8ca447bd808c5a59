"""The waiting rules: what has to be over before a command is decided, or a part of a turn is done.

=====================================  =============================================================
who                                    waits for
=====================================  =============================================================
HandOver                               log, tier step
BulkPiece                              log, tier step, earlier, bulk piece
TakeRuns                               bulk count
BeginOffload, AbortOffload             tier step
RecallRows                             tier step
FreezeOffload                          tier step, frozen buffers
CommitOffload                          tier step, frozen buffers, bulk recall, recalls
Recall, Reschedule                     tier step, adoption, unfiled
RecallByKey                            key search, tier step, adoption, unfiled
FindMessages                           key search, history
ShowMessage                            history
ListPending, PagePending               listing
ChangeSchedule, PauseSchedule          tier step, unfiled
RemoveSchedule                         tier step, unfiled
DeleteTopic                            topic, adoption, bulk recall, tier step, checkpoint
everything else                        nothing
=====================================  =============================================================

A command that has to wait is deferred, and decided again in every turn.  The broker runs turns
until the wait is over, except for the waits in `SIGNALLED`, whose end brings a turn by itself.  A
recall by key is asked for a second time, as the recalls that it stands for.  Three kinds of waiting
are not here: replies wait for the commit position (`broker.effects`), polls wait for messages
(`ready.polls`), and a command is refused where the wait would be long: while the disk is full and
messages cannot be filed, a command about one of them gets DISK_FULL, and a promotion beside a step
of the tier is to be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from horolog.protocol.commands import (
    DeleteTopic,
    FindMessages,
    ListPending,
    Recall,
    RecallByKey,
    Reschedule,
)
from horolog.protocol.history_commands import PagePending, ShowMessage
from horolog.protocol.schedules import ChangeSchedule, PauseSchedule, RemoveSchedule
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    FreezeOffload,
    RecallRows,
)


class Wait(StrEnum):
    """The conditions that a command or a part of a turn may have to wait for."""

    LOG = "log"  # half a segment is appended and not committed
    TIER_STEP = "tier step"  # a step of the tier is appended and not applied
    EARLIER = "earlier"  # records appended before a bulk recall arrived are not applied
    BULK_PIECE = "bulk piece"  # the one before is not committed; replies to others wait for it too
    ADOPTION = "adoption"  # an adoption is taken up, or appended and not applied
    UNFILED = "unfiled"  # messages with its id or key are taken up or appended, not filed
    TOPIC = "topic"  # messages or adoptions of the topic are taken up, or appended and not applied
    BULK_RECALL = "bulk recall"  # a bulk recall has arrived and is not done
    BULK_COUNT = "bulk count"  # a dry run of a bulk recall reads the sources as they are
    FROZEN_BUFFERS = "frozen buffers"  # a job writes runs of buffers the tier is to take
    RECALLS = "recalls"  # of messages that the tier is to take, appended and not applied
    HISTORY = "history"  # the log is searched for what became of the messages of the command
    LISTING = "listing"  # pending messages are read for that list
    KEY_SEARCH = "key search"  # adopted messages are searched for that key
    CHECKPOINT = "checkpoint"  # a checkpoint is half made


class HandOver(NamedTuple):
    """The hand-over of a turn."""


class BulkPiece(NamedTuple):
    """One turn's piece of a bulk recall."""


class TakeRuns(NamedTuple):
    """The take-over of the runs that a job has made."""


WAITS: Mapping[type, tuple[Wait, ...]] = {
    HandOver: (Wait.LOG, Wait.TIER_STEP),
    BulkPiece: (Wait.LOG, Wait.TIER_STEP, Wait.EARLIER, Wait.BULK_PIECE),
    TakeRuns: (Wait.BULK_COUNT,),
    BeginOffload: (Wait.TIER_STEP,),
    FreezeOffload: (Wait.TIER_STEP, Wait.FROZEN_BUFFERS),
    AbortOffload: (Wait.TIER_STEP,),
    RecallRows: (Wait.TIER_STEP,),
    CommitOffload: (Wait.TIER_STEP, Wait.FROZEN_BUFFERS, Wait.BULK_RECALL, Wait.RECALLS),
    Recall: (Wait.TIER_STEP, Wait.ADOPTION, Wait.UNFILED),
    Reschedule: (Wait.TIER_STEP, Wait.ADOPTION, Wait.UNFILED),
    RecallByKey: (Wait.KEY_SEARCH, Wait.TIER_STEP, Wait.ADOPTION, Wait.UNFILED),
    FindMessages: (Wait.KEY_SEARCH, Wait.HISTORY),
    ShowMessage: (Wait.HISTORY,),
    ListPending: (Wait.LISTING,),
    PagePending: (Wait.LISTING,),
    ChangeSchedule: (Wait.TIER_STEP, Wait.UNFILED),
    PauseSchedule: (Wait.TIER_STEP, Wait.UNFILED),
    RemoveSchedule: (Wait.TIER_STEP, Wait.UNFILED),
    DeleteTopic: (
        Wait.TOPIC,
        Wait.ADOPTION,
        Wait.BULK_RECALL,
        Wait.TIER_STEP,
        Wait.CHECKPOINT,
    ),
}

SIGNALLED = frozenset({Wait.FROZEN_BUFFERS})
"""Waits that end only with an event that brings a turn, such as the end of a job.

So the broker runs no turns to find out whether they are over.
"""


class UnderWay(Protocol):
    """The operations that are not over yet (`broker.under_way`)."""

    def has(self, what: Wait, command: object, token: object) -> bool:
        """Return whether an operation of that kind concerns the command."""
        ...


def waits_for(command: object, under_way: UnderWay, token: object = None) -> Wait | None:
    """Return the first thing that a command has to wait for; None: it can be decided."""
    for what in WAITS.get(type(command), ()):
        if under_way.has(what, command, token):
            return what
    return None
