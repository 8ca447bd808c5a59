"""What the admin API answers with: the shapes of results, which `views` and the endpoints make and OpenAPI tells.

Fields may be added, never renamed.  An instant `…_ms` (UTC epoch milliseconds) has a readable twin where people read
it, which is null when there is none.
"""

from __future__ import annotations

from typing_extensions import TypedDict


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
