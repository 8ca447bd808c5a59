"""Connected clients: producers, and members of consumer groups with their subscriptions.

A client registers with every heartbeat.  It is removed when it unregisters, when its connection
ends, or when nothing was heard of it for 120 s.  Nothing here outlives the process, since clients
send it all again.  The caller passes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from horolog.errors import ErrorCode, refused
from horolog.limits import (
    CLIENTS_REMEMBERED_MAX,
    REMOTING_CLIENT_EXPIRY_MS,
    SUBSCRIPTIONS_BYTES_MAX,
)
from horolog.protocol.remoting.heartbeat import (
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    Subscription,
)
from horolog.server.connected import POP, PULL, PUSH, REMOTING, ConnectedClient, shown_topics

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink


@dataclass(slots=True)
class Client:
    """A client in one of its groups.

    language, version  as the headers of the client's requests state them
    """

    client_id: str
    link: RemotingLink
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class Member(Client):
    """A client in a consumer group."""

    consumer: ConsumerData


_CONSUMES = {
    ConsumeType.CONSUME_ACTIVELY: PULL,
    ConsumeType.CONSUME_PASSIVELY: PUSH,
    ConsumeType.CONSUME_POP: POP,
}
_Entry = TypeVar("_Entry", bound=Client)


class _Place(NamedTuple):
    """The place of a client in a group."""

    consumes: bool
    group: str
    client_id: str


class Registry:
    """The clients of producer groups and consumer groups, by client id."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[str, Client]] = {}
        self._producing: dict[str, dict[str, Client]] = {}  # by client id and group
        self._groups: dict[str, dict[str, Member]] = {}
        self._entries = 0  # of producers and members together
        # Called with the group of a producer that has connected.
        self.on_producer_connected: Callable[[str], None] = _ignore_producer
        self._subscription_bytes = 0  # of all subscriptions
        self._on: dict[RemotingLink, set[_Place]] = {}  # places of clients, by their connection
        # Merged subscriptions of groups, until their next change.
        self._wanted: dict[str, dict[str, Subscription]] = {}

    # --- messages from clients --------------------------------------------------------------------

    def take_heartbeat(self, link: RemotingLink, heartbeat: Heartbeat, now_ms: int) -> set[str]:
        """Register a heartbeat; return the consumer groups whose members or their topics changed.

        A new version of a subscription is none: a client whose queues have changed reports one.
        Raise TOO_MANY_REQUESTS, and change nothing, when there is no room for another client.
        """
        self._check_room(heartbeat)
        client_id, language, version = heartbeat.client_id, link.language, link.version
        for group in heartbeat.producers:
            members = self._producers.setdefault(group, {})
            producer = Client(client_id, link, language, version, now_ms)
            if self._put(members, producer, group) is None:
                self.on_producer_connected(group)
        changed = set()
        for consumer in heartbeat.consumers:
            group = consumer.group
            known = self._groups.setdefault(group, {})
            member = Member(client_id, link, language, version, now_ms, consumer)
            old = self._put(known, member, group)
            if old is None or old.consumer.subscriptions != consumer.subscriptions:
                self._subscription_bytes += _bytes_of(consumer)
                self._subscription_bytes -= _bytes_of(old.consumer) if old else 0
                self._wanted.pop(group, None)
            if old is None or old.link is not link or old.consumer.topics != consumer.topics:
                changed.add(group)
        return changed

    def _put(self, members: dict[str, _Entry], client: _Entry, group: str) -> _Entry | None:
        """Store a client and its connection; return the entry that it replaces, or None."""
        before = members.get(client.client_id)
        members[client.client_id] = client
        place = _Place(isinstance(client, Member), group, client.client_id)
        if not place.consumes:
            self._producing.setdefault(client.client_id, {})[group] = client
        if before is None:
            self._entries += 1
        elif before.link is not client.link:
            self._remove_place(before.link, place)
        self._on.setdefault(client.link, set()).add(place)
        return before

    def _remove_place(self, link: RemotingLink, place: _Place) -> None:
        places = self._on[link]
        places.remove(place)
        if not places:
            del self._on[link]

    def _check_room(self, heartbeat: Heartbeat) -> None:
        self._check_entries(heartbeat)
        size = sum(map(_bytes_of, heartbeat.consumers))
        if self._subscription_bytes + size > SUBSCRIPTIONS_BYTES_MAX:
            known = (self.member(c.group, heartbeat.client_id) for c in heartbeat.consumers)
            size -= sum(_bytes_of(member.consumer) for member in known if member)
            if size > 0 and self._subscription_bytes + size > SUBSCRIPTIONS_BYTES_MAX:
                raise refused(
                    "subscriptionDataSet",
                    f"those of all clients would take {self._subscription_bytes + size} bytes;"
                    f" at most {SUBSCRIPTIONS_BYTES_MAX} are allowed",
                    f"{SUBSCRIPTIONS_BYTES_MAX} bytes",
                    code=ErrorCode.TOO_MANY_REQUESTS,
                )

    def _check_entries(self, heartbeat: Heartbeat) -> None:
        more = len(heartbeat.producers) + len(heartbeat.consumers)
        if self._entries + more > CLIENTS_REMEMBERED_MAX and not self._knows_all(heartbeat):
            raise refused(
                "clientID",
                f"{self._entries} clients are in groups, and no more of them are taken",
                f"{CLIENTS_REMEMBERED_MAX} clients",
                code=ErrorCode.TOO_MANY_REQUESTS,
            )

    def _knows_all(self, heartbeat: Heartbeat) -> bool:
        client_id = heartbeat.client_id
        return all(client_id in self._producers.get(g, ()) for g in heartbeat.producers) and all(
            client_id in self._groups.get(c.group, ()) for c in heartbeat.consumers
        )

    def remove_client(self, client_id: str, producer_group: str, consumer_group: str) -> set[str]:
        """Remove a client from these groups ("": none); return the consumer groups that changed."""
        self._remove(_Place(False, producer_group, client_id))
        gone = self._remove(_Place(True, consumer_group, client_id))
        return {consumer_group} if gone else set()

    def remove_connection(self, link: RemotingLink) -> set[str]:
        """Remove the clients of a lost connection; return the consumer groups that changed."""
        return self._remove_all(list(self._on.get(link, ())))

    def expire(self, now_ms: int) -> set[str]:
        """Remove clients that were silent too long; return the consumer groups that changed."""
        since_ms = now_ms - REMOTING_CLIENT_EXPIRY_MS
        silent = [
            _Place(consumes, group, client.client_id)
            for consumes, groups in ((False, self._producers), (True, self._groups))
            for group, members in groups.items()
            for client in members.values()
            if client.seen_ms < since_ms
        ]
        return self._remove_all(silent)

    # --- connected clients ------------------------------------------------------------------------

    def members(self, group: str) -> list[Member]:
        """Return the members of a consumer group."""
        return list(self._groups.get(group, {}).values())

    def member(self, group: str, client_id: str) -> Member | None:
        """Return a client of a consumer group, or None."""
        return self._groups.get(group, {}).get(client_id)

    def producers(self, group: str) -> list[Client]:
        """Return the clients of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Client | None:
        """Return a client of any producer group; of several connections the one heard of last."""
        clients = self._producing.get(client_id, {}).values()
        return max(clients, key=lambda client: client.seen_ms, default=None)

    @property
    def producer_groups(self) -> list[str]:
        """Producer groups that have a client."""
        return sorted(self._producers)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return a group's subscription to a topic, the newest version that a member has sent."""
        return self._wanted_by(group).get(topic)

    def has(self, link: RemotingLink) -> bool:
        """Return whether a client is registered on a connection."""
        return link in self._on

    def broadcasts(self, group: str) -> bool:
        """Return whether every member of a group gets all messages, as the first member states."""
        members = self._groups.get(group)
        if not members:
            return False
        return next(iter(members.values())).consumer.model is MessageModel.BROADCASTING

    def has_pulling(self, group: str, link: RemotingLink | None = None) -> bool:
        """Return whether a group has a pull consumer (on `link`), which decides its offsets."""
        return any(
            member.consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
            and (link is None or member.link is link)
            for member in self._groups.get(group, {}).values()
        )

    def subscriptions(self, group: str) -> dict[str, Subscription]:
        """Return the subscriptions of a group, by topic."""
        return dict(sorted(self._wanted_by(group).items()))

    def _wanted_by(self, group: str) -> dict[str, Subscription]:
        """Return the merged subscriptions of a group, cached until the group changes."""
        members = self._groups.get(group)
        if members is None:
            return {}
        wanted = self._wanted.get(group)
        if wanted is None:
            wanted = self._wanted[group] = {}
            for member in members.values():
                for topic, subscription in member.consumer.subscriptions.items():
                    known = wanted.get(topic)
                    if known is None or known.version < subscription.version:
                        wanted[topic] = subscription
        return wanted

    def connected(self) -> Iterator[ConnectedClient]:
        """Yield all clients, each once with all its groups."""
        for link, places in list(self._on.items()):
            of_client: dict[str, list[_Place]] = {}
            for place in places:
                of_client.setdefault(place.client_id, []).append(place)
            for client_id, its in of_client.items():
                yield self._shown(link, client_id, its)

    def connected_members(self, group: str) -> Iterator[ConnectedClient]:
        """Yield the connected clients of a consumer group."""
        return (
            self._shown(each.link, each.client_id, [_Place(True, group, each.client_id)])
            for each in self.members(group)
        )

    def member_count(self, group: str) -> int:
        """Return how many clients of a consumer group are connected."""
        return len(self._groups.get(group, ()))

    def _shown(
        self, link: RemotingLink, client_id: str, places: Sequence[_Place]
    ) -> ConnectedClient:
        groups = sorted(place.group for place in places if place.consumes)
        members = [each for group in groups if (each := self.member(group, client_id))]
        wanted = [topic for member in members for topic in member.consumer.subscriptions]
        kinds = {_CONSUMES[member.consumer.consume_type] for member in members}
        origin = link.origin
        return ConnectedClient(
            client_id,
            REMOTING,
            origin.address,
            link.language,
            str(link.version),
            min(kinds, default=""),
            groups,
            sorted(place.group for place in places if not place.consumes),
            shown_topics(wanted),
            origin.connected_ms,
            origin.tls,
        )

    def groups_of(self, topic: str) -> list[str]:
        """Return the consumer groups with a member that subscribes to a topic."""
        return [group for group in sorted(self._groups) if self.subscription(group, topic)]

    # --- within -----------------------------------------------------------------------------------

    def _remove(self, place: _Place) -> bool:
        groups: Mapping[str, dict[str, Any]] = self._groups if place.consumes else self._producers
        members = groups.get(place.group, {})
        client = members.pop(place.client_id, None)
        if client is None:
            return False
        self._entries -= 1
        self._remove_place(client.link, place)
        if isinstance(client, Member):
            self._subscription_bytes -= _bytes_of(client.consumer)
            self._wanted.pop(place.group, None)
        else:
            self._stop_producing(place)
        if not members:
            self._groups.pop(place.group) if place.consumes else self._producers.pop(place.group)
        return True

    def _stop_producing(self, place: _Place) -> None:
        groups = self._producing[place.client_id]
        del groups[place.group]
        if not groups:
            del self._producing[place.client_id]

    def _remove_all(self, places: list[_Place]) -> set[str]:
        return {place.group for place in places if self._remove(place) and place.consumes}

    def check_invariants(self) -> None:
        """Check that no group is empty, and all entries are counted and known by connection."""
        sizes = [len(members) for members in self._producers.values()]
        sizes += [len(members) for members in self._groups.values()]
        assert all(sizes)
        producing = {
            (id, group): c for id, of in self._producing.items() for group, c in of.items()
        }
        assert producing == {
            (id, group): c for group, of in self._producers.items() for id, c in of.items()
        }
        assert self._entries == sum(sizes) == sum(map(len, self._on.values()))
        members = [member for group in self._groups.values() for member in group.values()]
        assert self._subscription_bytes == sum(_bytes_of(member.consumer) for member in members)


def _bytes_of(consumer: ConsumerData) -> int:
    """Return about how many bytes the subscriptions of a consumer take."""
    return sum(each.size_bytes for each in consumer.subscriptions.values())


def _ignore_producer(_group: str) -> None:
    """Ignore that a producer has connected."""
