"""What the admin API answers with: the shapes of results, which `views` and the endpoints make and OpenAPI tells.

Fields may be added, never renamed.  An instant `…_ms` (UTC epoch milliseconds) has a readable twin where people read
it, which is null when there is none.
"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from horolog.admin.message_shapes import Payload, Problem
from horolog.protocol.commands import GroupQueueView


class Client(TypedDict):
    """A connected client."""

    client_id: str
    door: str  # grpc or remoting
    address: str
    language: str
    version: str  # of 4.x clients the ordinal of RocketMQ's MQVersion
    consumes: str  # push, pull, pop, simple; "": it does not
    groups: list[str]
    producer_groups: list[str]
    topics: list[str]  # at most 100
    connected_ms: int
    connected: str | None
    tls: bool


class Clients(TypedDict):
    """A page of them; `next` is null at the end."""

    clients: list[Client]
    next: str | None


class GroupRow(TypedDict):
    """A consumer group in a list."""

    group: str
    topics: int
    members: int
    consume: str  # of the members: push, pull, pop, simple, mixed; "": there is none
    waiting: int  # visible and not consumed, in all topics; what is leased included
    leased: int
    orderly: bool
    retry_max: int


class Groups(TypedDict):
    """A page of them; `next` is null at the end."""

    groups: list[GroupRow]
    next: str | None


class GroupTopic(TypedDict):
    """How far a group is in a topic."""

    topic: str
    waiting: int
    leased: int
    oldest_waiting_ms: (
        int  # when the oldest message became visible that is not consumed; 0: there is none
    )
    oldest_waiting: str | None
    members: int  # that have subscribed to it, as they say


class GroupSettings(TypedDict):
    """How a consumer group consumes."""

    group: str
    orderly: bool
    retry_max: int


class Group(GroupSettings):
    """A consumer group whole; `next` is null when these are all of its topics."""

    consume: str
    topics: list[GroupTopic]
    members: list[Client]
    next: str | None


class QueueReset(TypedDict):
    """Where a group was in a queue, and where it goes on."""

    queue_id: int
    from_offset: int
    to_offset: int


class GroupReset(TypedDict):
    """A reset of a group in a topic: how many messages come again, or are passed over, in all queues."""

    group: str
    topic: str
    dry_run: bool
    again: int
    skipped: int
    queues: list[QueueReset]


class DeletedGroup(TypedDict):
    """What was deleted."""

    deleted: str


class Check(TypedDict):
    """A named check of health."""

    name: str
    ok: bool
    detail: str  # what is wrong; empty when nothing is
    holes: NotRequired[int]
    repairs: NotRequired[int]


class Health(TypedDict):
    """Whether all checks are well."""

    healthy: bool
    checks: list[Check]


class Status(TypedDict):
    """`ok` when all checks are well, else `failing`."""

    status: str
    checks: list[Check]


class Identity(TypedDict):
    """Who asks; the rights are those to the topic that was named."""

    access_key: str  # "": nobody has to say who it is
    admin: bool  # may do everything
    topic: str
    rights: list[str]  # PUB, SUB


class Clock(TypedDict):
    """The broker's clock."""

    kind: str  # simulated or system
    wall_ms: int
    wall: str | None


class BrokerName(TypedDict):
    """Which broker, and which version of horolog it is."""

    version: str
    broker_name: str


class Topic(TypedDict):
    """A topic."""

    name: str
    type: str
    queues: int
    queue_offsets: list[int]  # the next of each queue
    pending: int
    min_offsets: list[int]
    perm: int
    late: str
    late_after_ms: int
    multi_tag: bool
    order: bool
    read_queues: int
    write_queues: int
    open_transactions: int


class Topics(TypedDict):
    """A page of them."""

    topics: list[Topic]


class DeletedTopic(TypedDict):
    """What was deleted, and how many messages of it were recalled before."""

    deleted: str
    recalled: int


class GroupProgress(TypedDict):
    """Progress of a group in the queues of a topic; `waiting` counts leased messages too."""

    group: str
    topic: str
    waiting: int
    leased: int
    queues: list[GroupQueueView]


class Firing(TypedDict):
    """A firing of a schedule; one that is planned has a message id."""

    firing: int
    nominal_ms: int
    nominal: str
    deliver_at_ms: int
    deliver_at: str | None
    message_id: str


class Schedule(Payload):
    """A recurring schedule: when, what, and how far it is."""

    name: str
    state: str
    revision: int
    cron: str
    every_ms: int
    zone: str
    gap: str
    overlap: str
    missed: str
    start_ms: int
    start: str | None
    end_ms: int
    end: str | None
    times: int
    jitter_ms: int
    topic: str
    tag: str | None
    keys: list[str]
    properties: dict[str, str]
    message_group: str | None
    created_ms: int
    created: str | None
    fired: int
    planned: list[Firing]
    problem: str


class ComingSchedule(Schedule):
    """With its next firings."""

    next: list[Firing]


class Schedules(TypedDict):
    """A page of them."""

    schedules: list[Schedule]


class Firings(TypedDict):
    """The next firings of a schedule."""

    name: str
    next: list[Firing]


class RemovedSchedule(TypedDict):
    """What was removed."""

    removed: str


class Backup(TypedDict):
    """A backup: how far it is, or how it ended."""

    state: str
    directory: str
    number: int
    position: int
    made_ms: int
    made: str | None
    files: int
    files_done: int
    bytes: int
    bytes_done: int
    copied_files: int
    copied_bytes: int
    damaged: list[str]
    error: Problem | None
