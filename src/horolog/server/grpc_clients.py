"""What the door remembers of each client from its Telemetry stream: its type, how long its polls wait, who it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from horolog.limits import (
    CLIENT_TOPICS_SHOWN_MAX,
    CLIENTS_REMEMBERED_MAX,
    FILTER_EXPRESSION_MAX,
    SUBSCRIPTIONS_BYTES_MAX,
)
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import name_of
from horolog.protocol.remoting.heartbeat import SQL92, TAG, Subscription
from horolog.server.connected import (
    GRPC,
    PULL,
    PUSH,
    SIMPLE,
    ConnectedClient,
    Origin,
    shown_topics,
)

T = TypeVar("T")


class ClientSettings(NamedTuple):
    """Settings in force; `poll_ms` is None where the client has said nothing of polls."""

    client_type: int
    poll_ms: int | None = None


_shared = lru_cache(maxsize=64)(ClientSettings)  # thousands of clients have the same


class _Heard(Generic[T]):
    """Values by client id, of clients that were heard of in this period or in the one before.

    Two plain dicts take half of what a dict in order takes, and a period ends without a look at anybody.
    """

    def __init__(self) -> None:
        self._now: dict[str, T] = {}
        self._before: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._now) + len(self._before)

    def end_period(self) -> None:
        """Forget whom nobody has heard of in it."""
        self._before, self._now = self._now, {}

    def put(self, client_id: str, value: T) -> None:
        """It is heard of.  If there are too many, one of those goes that were not, or else the newest."""
        self._before.pop(client_id, None)
        if len(self) >= CLIENTS_REMEMBERED_MAX and client_id not in self._now:
            (self._before or self._now).popitem()
        self._now[client_id] = value

    def get(self, client_id: str) -> T | None:
        """What is known of it."""
        found = self._now.get(client_id)
        return found if found is not None else self._before.get(client_id)

    def drop(self, client_id: str) -> None:
        """Forget it."""
        self._now.pop(client_id, None)
        self._before.pop(client_id, None)


class Clients:
    """Clients by id; those that are dropped settle again when they come back.

    The door calls `sweep` every CLIENT_SWEEP_MS, so that clients that come and go leave nothing behind.
    """

    def __init__(self) -> None:
        self._known: _Heard[ClientSettings] = _Heard()
        self._gone: _Heard[bool] = _Heard()  # said good-bye, and not heard of since

    def sweep(self) -> None:
        """Forget whom nobody has heard of since the sweep before."""
        self._known.end_period()
        self._gone.end_period()

    def settle(self, client_id: str, settings: ClientSettings) -> None:
        """Its settings over Telemetry."""
        self._gone.drop(client_id)
        self._known.put(client_id, _shared(*settings))

    def beat(self, client_id: str, client_type: int) -> bool:
        """A heartbeat; whether anything is known of the client.  Old clients do not say their type."""
        known = self._known.get(client_id)
        if known is None and not client_type:
            return False
        self.settle(client_id, known or ClientSettings(client_type))
        return True

    def forget(self, client_id: str) -> None:
        """It goes; a receive that it still has under way must not wait."""
        self._known.drop(client_id)
        self._gone.put(client_id, True)

    def poll_ms(self, client_id: str) -> int | None:
        """How long a poll waits that does not say so itself."""
        known = self._known.get(client_id)
        return known.poll_ms if known else None

    def is_gone(self, client_id: str) -> bool:
        """Whether the last that was heard of it is its good-bye."""
        return self._gone.get(client_id) is not None


CONSUMERS = {
    pb.PUSH_CONSUMER: PUSH,
    pb.SIMPLE_CONSUMER: SIMPLE,
    pb.PULL_CONSUMER: PULL,
}


class Stream(Protocol):
    """An open Telemetry stream."""

    client_id: str
    language: str
    version: str

    @property
    def origin(self) -> Origin:
        """Its connection."""
        ...

    def may_be_asked(self, topic: str) -> bool:
        """Whether it takes what it is told, and may send to a topic, as the access file says now."""
        ...

    def tell(self, command: pb.TelemetryCommand) -> bool:
        """Ask the client for something; False if it is gone, or takes nothing."""
        ...


class _Settled(NamedTuple):
    """What a client has said of itself."""

    consumes: str
    group: str
    topics: tuple[str, ...]


class _Wanted:
    """What consumer groups want, by topic: as the member said that was heard last.

    Only tools are told of it, so what would take too much memory is not kept.
    """

    def __init__(self) -> None:
        self._of_group: dict[str, dict[str, Subscription]] = {}
        self._bytes = 0

    def put(self, group: str, subscription: pb.Subscription) -> None:
        """What a member has said; what others of its group said before is over."""
        self.drop(group)
        now_ms = time.time_ns() // 1_000_000
        wanted = {}
        for entry in subscription.subscriptions[:CLIENT_TOPICS_SHOWN_MAX]:
            topic, expression = name_of(entry.topic), entry.expression.expression or "*"
            is_sql = entry.expression.type == pb.SQL
            if len(expression) <= FILTER_EXPRESSION_MAX:
                kind = SQL92 if is_sql else TAG
                wanted[topic] = Subscription(topic, expression, kind, now_ms)
        size = sum(each.size_bytes for each in wanted.values())
        if wanted and self._bytes + size <= SUBSCRIPTIONS_BYTES_MAX:
            self._of_group[group] = wanted
            self._bytes += size

    def drop(self, group: str) -> None:
        """It has no member any more."""
        wanted = self._of_group.pop(group, {})
        self._bytes -= sum(each.size_bytes for each in wanted.values())

    def of(self, group: str) -> Mapping[str, Subscription]:
        """What a group wants."""
        return self._of_group.get(group, {})

    def groups_of(self, topic: str) -> list[str]:
        """Groups that want something of a topic."""
        return sorted(group for group, wanted in self._of_group.items() if topic in wanted)


class Streams:
    """Clients with an open Telemetry stream that have told their settings; the members of each group among them."""

    def __init__(self) -> None:
        self._settled: dict[Stream, _Settled] = {}
        self._of_group: dict[str, dict[Stream, None]] = {}
        self._of_client: dict[str, Stream] = {}  # the one that has settled last
        self.wanted = _Wanted()

    def settle(self, stream: Stream, settings: pb.Settings) -> None:
        """Its settings; later ones replace what it said before."""
        self.leave(stream)
        group, consumes = "", ""
        topics = list(settings.publishing.topics)
        if settings.HasField("subscription"):
            group = name_of(settings.subscription.group)
            topics = [entry.topic for entry in settings.subscription.subscriptions]
            consumes = CONSUMERS.get(settings.client_type, PUSH)
            self._of_group.setdefault(group, {})[stream] = None
            self.wanted.put(group, settings.subscription)
        self._of_client[stream.client_id] = stream
        self._settled[stream] = _Settled(consumes, group, shown_topics(list(map(name_of, topics))))

    def leave(self, stream: Stream) -> None:
        """It has ended, or its client has said good-bye."""
        settled = self._settled.pop(stream, None)
        if self._of_client.get(stream.client_id) is stream:
            del self._of_client[stream.client_id]
        if settled is not None and settled.group:
            members = self._of_group[settled.group]
            del members[stream]
            if not members:
                del self._of_group[settled.group]
                self.wanted.drop(settled.group)

    def of_client(self, client_id: str) -> Stream | None:
        """The stream of a client, the one that has settled last."""
        return self._of_client.get(client_id)

    def __iter__(self) -> Iterator[ConnectedClient]:
        """All of them that are still there when it comes to them."""
        return (self._shown(stream) for stream in list(self._settled) if stream in self._settled)

    def members(self, group: str) -> list[ConnectedClient]:
        """Those in a consumer group."""
        return [self._shown(stream) for stream in self._of_group.get(group, ())]

    def member_count(self, group: str) -> int:
        """How many these are."""
        return len(self._of_group.get(group, ()))

    def member(self, group: str, client_id: str) -> Stream | None:
        """One of them; of several with that id the one that has settled last."""
        streams = reversed(self._of_group.get(group, {}))
        return next((stream for stream in streams if stream.client_id == client_id), None)

    def publishers(self) -> Iterator[ConnectedClient]:
        """Clients that send."""
        return (client for client in self if not client.groups)

    def _shown(self, stream: Stream) -> ConnectedClient:
        settled = self._settled[stream]
        origin = stream.origin
        return ConnectedClient(
            stream.client_id,
            GRPC,
            origin.address,
            stream.language,
            stream.version,
            settled.consumes,
            (settled.group,) if settled.group else (),
            (),
            settled.topics,
            origin.connected_ms,
            origin.tls,
        )
