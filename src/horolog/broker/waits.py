"""Who waits for whom: what has to be over before a command is decided, or a part of a turn is done.

=====================================  ==================================================================
who                                    waits for
=====================================  ==================================================================
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
ChangeSchedule, PauseSchedule          tier step, unfiled
RemoveSchedule                         tier step, unfiled
DeleteTopic                            topic, adoption, bulk recall, tier step, checkpoint
everything else                        nothing
=====================================  ==================================================================

What waits is deferred, and asked for again in every turn.  Turns are had for it until it is decided, but for what
`SIGNALLED` names: the end of that brings a turn by itself.  A recall by key is asked for a second time, as the recalls
that it stands for.  Three things are not here: replies wait for the commit position (`broker.effects`), polls wait
for messages (`ready.polls`), and what is not over for long is refused: while the disk is full and messages cannot be
filed, whoever means one of them gets DISK_FULL, and a promotion beside a step of the tier is to be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from horolog.protocol.commands import DeleteTopic, FindMessages, Recall, RecallByKey, Reschedule
from horolog.protocol.history_commands import ShowMessage
from horolog.protocol.schedules import ChangeSchedule, PauseSchedule, RemoveSchedule
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    FreezeOffload,
    RecallRows,
)


class Wait(StrEnum):
    """What is waited for."""

    LOG = "log"  # half a segment is appended and not durable
    TIER_STEP = "tier step"  # one is appended and not applied
    EARLIER = "earlier"  # what was appended before a bulk recall came, and is not applied
    BULK_PIECE = "bulk piece"  # the one before is appended and not committed: others' answers wait for it too
    ADOPTION = "adoption"  # one is taken up, or appended and not applied
    UNFILED = "unfiled"  # messages of that id or key, which are taken up or appended and not filed
    TOPIC = "topic"  # something of it is taken up, or appended and not applied
    BULK_RECALL = "bulk recall"  # one has come and is not done
    BULK_COUNT = "bulk count"  # a dry run of one, which looks at the sources as they are
    FROZEN_BUFFERS = "frozen buffers"  # a job writes what the tier is about to take as runs
    RECALLS = "recalls"  # of what the tier is about to take, appended and not applied
    HISTORY = "history"  # the log is looked at for what became of the messages that are meant
    KEY_SEARCH = "key search"  # adopted messages with that key are looked for
    CHECKPOINT = "checkpoint"  # one is half made


class HandOver(NamedTuple):
    """The hand-over of a turn."""


class BulkPiece(NamedTuple):
    """The piece of a bulk recall that a turn does."""


class TakeRuns(NamedTuple):
    """Taking over the runs that a job has made."""


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
"""What ends only with something that brings a turn (a job is done), so nobody has to look whether it has."""


class UnderWay(Protocol):
    """What is not over yet (`broker.under_way`)."""

    def has(self, what: Wait, command: object, token: object) -> bool:
        """Whether there is something of that kind that concerns the command."""
        ...


def waits_for(command: object, under_way: UnderWay, token: object = None) -> Wait | None:
    """The first thing that a command, asked with that token, has to wait for; None: it can be decided."""
    for what in WAITS.get(type(command), ()):
        if under_way.has(what, command, token):
            return what
    return None
