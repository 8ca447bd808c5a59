"""Types of the results of the admin API, which `views` and endpoints make and OpenAPI describes.

Fields may be added, never renamed.  An instant `…_ms` (UTC epoch milliseconds) has a readable twin
where people read it, which is null when there is none.
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
    version: str  # for 4.x clients the ordinal of RocketMQ's MQVersion
    consumes: str  # push, pull, pop, simple; "": it does not consume
    groups: list[str]
    producer_groups: list[str]
    topics: list[str]  # at most 100
    connected_ms: int
    connected: str | None
    tls: bool


class Clients(TypedDict):
    """A page of connected clients; `next` is null at the end."""

    clients: list[Client]
    next: str | None


class GroupRow(TypedDict):
    """A consumer group in a list."""

    group: str
    topics: int
    members: int
    consume: str  # by its members: push, pull, pop, simple, mixed; "": it has none
    waiting: int  # visible and not consumed messages in all topics, leased ones included
    leased: int
    orderly: bool
    retry_max: int


class Groups(TypedDict):
    """A page of consumer groups; `next` is null at the end."""

    groups: list[GroupRow]
    next: str | None


class GroupTopic(TypedDict):
    """The progress of a group in a topic."""

    topic: str
    waiting: int
    leased: int
    oldest_waiting_ms: (
        int  # when the oldest message that is not consumed became visible; 0: there is none
    )
    oldest_waiting: str | None
    members: int  # that say they have subscribed to the topic


class GroupSettings(TypedDict):
    """The settings of a consumer group."""

    group: str
    orderly: bool
    retry_max: int


class Group(GroupSettings):
    """A consumer group whole; `next` is null when all of its topics are listed.

    `members` has the first 1000 of the `member_count` connected clients, by id.
    """

    consume: str
    topics: list[GroupTopic]
    member_count: int
    members: list[Client]
    next: str | None


class QueueReset(TypedDict):
    """The old and the new place of a group in a queue."""

    queue_id: int
    from_offset: int
    to_offset: int


class GroupReset(TypedDict):
    """A reset of a group in a topic: how many messages come again or are skipped, in all queues."""

    group: str
    topic: str
    dry_run: bool
    again: int
    skipped: int
    queues: list[QueueReset]


class DeletedGroup(TypedDict):
    """The group that was deleted."""

    deleted: str


class Check(TypedDict):
    """A named check of health."""

    name: str
    ok: bool
    detail: str  # what is wrong; empty when the check is ok
    holes: NotRequired[int]
    repairs: NotRequired[int]


class Health(TypedDict):
    """The named checks, and whether all are ok."""

    healthy: bool
    checks: list[Check]


class Status(TypedDict):
    """The checks; `status` is `ok` when all are ok, else `failing`."""

    status: str
    checks: list[Check]


class Identity(TypedDict):
    """The caller, and its rights to the topic that was named."""

    access_key: str  # "": there is no access control
    admin: bool  # may do everything
    topic: str
    rights: list[str]  # PUB, SUB


class Clock(TypedDict):
    """The broker's clock."""

    kind: str  # simulated or system
    wall_ms: int
    wall: str | None


class BrokerName(TypedDict):
    """The name of the broker, and its version of horolog."""

    version: str
    broker_name: str


class Topic(TypedDict):
    """A topic."""

    name: str
    type: str
    queues: int
    queue_offsets: list[int]  # the next offset of each queue
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
    """A page of topics."""

    topics: list[Topic]


class DeletedTopic(TypedDict):
    """The topic that was deleted, and how many of its messages were recalled before."""

    deleted: str
    recalled: int


class GroupProgress(TypedDict):
    """The progress of a group in the queues of a topic; `waiting` counts leased messages too."""

    group: str
    topic: str
    waiting: int
    leased: int
    queues: list[GroupQueueView]


class Firing(TypedDict):
    """A firing of a schedule; a planned one has a message id."""

    firing: int
    nominal_ms: int
    nominal: str
    deliver_at_ms: int
    deliver_at: str | None
    message_id: str


class Schedule(Payload):
    """A recurring schedule: its rule, its content and its progress."""

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
    """A schedule with its next firings."""

    next: list[Firing]


class Schedules(TypedDict):
    """A page of schedules."""

    schedules: list[Schedule]


class Firings(TypedDict):
    """The next firings of a schedule."""

    name: str
    next: list[Firing]


class RemovedSchedule(TypedDict):
    """The schedule that was removed."""

    removed: str


class Backup(TypedDict):
    """A backup: its progress, or how it ended."""

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
