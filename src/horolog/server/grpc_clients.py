"""What the gRPC door remembers of each client: its settings, its subscriptions, its stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from horolog.limits import (
    CLIENT_TOPICS_MAX,
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
    """A client's settings in force; `poll_ms` is None where the client has set no polling time."""

    client_type: int
    poll_ms: int | None = None


_shared = lru_cache(maxsize=64)(ClientSettings)  # thousands of clients have equal settings


class _Recent(Generic[T]):
    """Values by client id, of clients that were heard of in this period or in the one before.

    Two plain dicts take half the memory of an ordered dict, and a period ends without a scan.
    """

    def __init__(self) -> None:
        self._now: dict[str, T] = {}
        self._before: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._now) + len(self._before)

    def end_period(self) -> None:
        """End a period; drop clients that were not heard of in it."""
        self._before, self._now = self._now, {}

    def put(self, client_id: str, value: T) -> None:
        """Store the value of a client that was heard of.

        If there are too many, drop one that was not heard of in this period, or else the newest.
        """
        self._before.pop(client_id, None)
        if len(self) >= CLIENTS_REMEMBERED_MAX and client_id not in self._now:
            (self._before or self._now).popitem()
        self._now[client_id] = value

    def get(self, client_id: str) -> T | None:
        """Return the value of a client; None if it is not known."""
        found = self._now.get(client_id)
        return found if found is not None else self._before.get(client_id)

    def drop(self, client_id: str) -> None:
        """Drop a client."""
        self._now.pop(client_id, None)
        self._before.pop(client_id, None)


class Clients:
    """Settings of clients by id; a client that was dropped settles again when it comes back.

    The door calls `sweep` every CLIENT_SWEEP_MS, so that clients that have gone take no memory.
    """

    def __init__(self) -> None:
        self._known: _Recent[ClientSettings] = _Recent()
        self._gone: _Recent[bool] = _Recent()  # have terminated, and were not heard of since

    def sweep(self) -> None:
        """Drop clients that were not heard of since the sweep before."""
        self._known.end_period()
        self._gone.end_period()

    def store_settings(self, client_id: str, settings: ClientSettings) -> None:
        """Store the settings that a client has sent over Telemetry."""
        self._gone.drop(client_id)
        self._known.put(client_id, _shared(*settings))

    def take_heartbeat(self, client_id: str, client_type: int) -> bool:
        """Take a heartbeat; return whether the client is known.  Old clients send no type."""
        known = self._known.get(client_id)
        if known is None and not client_type:
            return False
        self.store_settings(client_id, known or ClientSettings(client_type))
        return True

    def forget(self, client_id: str) -> None:
        """Drop a client that terminates; a receive that it still has under way must not wait."""
        self._known.drop(client_id)
        self._gone.put(client_id, True)

    def poll_ms(self, client_id: str) -> int | None:
        """Return how long a client's poll waits if the request does not say so, in ms."""
        known = self._known.get(client_id)
        return known.poll_ms if known else None

    def is_gone(self, client_id: str) -> bool:
        """Return whether a client has terminated, and was not heard of since."""
        return self._gone.get(client_id) is not None


CONSUMERS = {
    pb.PUSH_CONSUMER: PUSH,
    pb.SIMPLE_CONSUMER: SIMPLE,
    pb.PULL_CONSUMER: PULL,
}


class Stream(Protocol):
    """An open Telemetry stream of a client."""

    client_id: str
    language: str
    version: str

    @property
    def origin(self) -> Origin:
        """The connection of the stream."""
        ...

    def may_be_asked(self, topic: str) -> bool:
        """Return whether the client reads its stream, and may now send to `topic`."""
        ...

    def send_command(self, command: pb.TelemetryCommand) -> bool:
        """Send the client a command; return False if it has gone, or does not read its stream."""
        ...


class _StreamSettings(NamedTuple):
    """The relevant settings of a client: how it consumes, its group, its topics."""

    consumes: str
    group: str
    topics: tuple[str, ...]


class _Subscriptions:
    """Subscriptions of consumer groups, by topic, as the last client of the group has sent them.

    Only tools read them, so subscriptions that would take too much memory are not kept.
    """

    def __init__(self) -> None:
        self._of_group: dict[str, dict[str, Subscription]] = {}
        self._bytes = 0

    def put(self, group: str, subscription: pb.Subscription) -> None:
        """Store the subscriptions of a client; they replace those of other clients of the group."""
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
        """Remove a group that has no clients any more."""
        wanted = self._of_group.pop(group, {})
        self._bytes -= sum(each.size_bytes for each in wanted.values())

    def of(self, group: str) -> Mapping[str, Subscription]:
        """Return the subscriptions of a group, by topic."""
        return self._of_group.get(group, {})

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic."""
        return sorted(group for group, wanted in self._of_group.items() if topic in wanted)


class Streams:
    """Clients with an open Telemetry stream that have sent settings, and the groups they are in."""

    def __init__(self) -> None:
        self._settings: dict[Stream, _StreamSettings] = {}
        self._of_group: dict[str, dict[Stream, None]] = {}
        self._of_client: dict[str, Stream] = {}  # the stream that has settled last
        self._topics = 0  # of all settings
        self.subscriptions = _Subscriptions()

    def store_settings(self, stream: Stream, settings: pb.Settings) -> None:
        """Store the settings of a stream; they replace its earlier ones."""
        self.remove(stream)
        group, consumes = "", ""
        topics = list(settings.publishing.topics)
        if settings.HasField("subscription"):
            group = name_of(settings.subscription.group)
            topics = [entry.topic for entry in settings.subscription.subscriptions]
            consumes = CONSUMERS.get(settings.client_type, PUSH)
            self._of_group.setdefault(group, {})[stream] = None
            self.subscriptions.put(group, settings.subscription)
        self._of_client[stream.client_id] = stream
        shown = tuple(map(sys.intern, shown_topics(list(map(name_of, topics)))))
        if self._topics + len(shown) > CLIENT_TOPICS_MAX:
            shown = ()
        self._topics += len(shown)
        self._settings[stream] = _StreamSettings(consumes, group, shown)

    def remove(self, stream: Stream) -> None:
        """Remove a stream that has ended, or whose client has terminated."""
        settled = self._settings.pop(stream, None)
        if self._of_client.get(stream.client_id) is stream:
            del self._of_client[stream.client_id]
        if settled is None:
            return
        self._topics -= len(settled.topics)
        if settled.group:
            members = self._of_group[settled.group]
            del members[stream]
            if not members:
                del self._of_group[settled.group]
                self.subscriptions.drop(settled.group)

    def of_client(self, client_id: str) -> Stream | None:
        """Return the stream of a client, the one that has settled last."""
        return self._of_client.get(client_id)

    def __iter__(self) -> Iterator[ConnectedClient]:
        """Iterate over all clients whose streams are still open when they are reached."""
        return self._each_shown(self._settings)

    def members(self, group: str) -> Iterator[ConnectedClient]:
        """Iterate over the connected clients of a consumer group, as over all."""
        return self._each_shown(self._of_group.get(group, ()))

    def member_ids(self, group: str) -> list[str]:
        """Return the client ids of a consumer group."""
        return [stream.client_id for stream in self._of_group.get(group, ())]

    def member_count(self, group: str) -> int:
        """Return how many clients of a consumer group are connected."""
        return len(self._of_group.get(group, ()))

    def member(self, group: str, client_id: str) -> Stream | None:
        """Return a group's stream by client id, of several the one that settled last."""
        streams = reversed(self._of_group.get(group, {}))
        return next((stream for stream in streams if stream.client_id == client_id), None)

    def shown_member(self, group: str, client_id: str) -> ConnectedClient | None:
        """Return a client of a consumer group, or None."""
        stream = self.member(group, client_id)
        return None if stream is None else self._shown(stream)

    def publishers(self, topic: str = "") -> Iterator[ConnectedClient]:
        """Iterate over the clients that send (to a topic), as over all."""
        return self._each_shown(
            stream
            for stream, settled in self._settings.items()
            if not settled.group and (not topic or topic in settled.topics)
        )

    def _each_shown(self, streams: Iterable[Stream]) -> Iterator[ConnectedClient]:
        return (self._shown(stream) for stream in list(streams) if stream in self._settings)

    def _shown(self, stream: Stream) -> ConnectedClient:
        settled = self._settings[stream]
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
