"""Who is there: producers, and the members of consumer groups with their connections and subscriptions.

A client registers with every heartbeat, and is gone when it says so, when its connection ends, or when nothing was
heard of it for 120 s.  Nothing here outlives the process: clients tell it all again.  The clock is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from horolog.errors import ErrorCode, HorologError
from horolog.limits import CLIENTS_REMEMBERED_MAX, REMOTING_CLIENT_EXPIRY_MS
from horolog.protocol.remoting.heartbeat import ConsumerData, Heartbeat, Subscription

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink


@dataclass(slots=True)
class Client:
    """A client in one of its groups.

    language, version  what it says of itself in the header of its requests
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


_Entry = TypeVar("_Entry", bound=Client)


class Registry:
    """Producer groups, and consumer groups: who is in each, by client id."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[str, Client]] = {}
        self._groups: dict[str, dict[str, Member]] = {}
        self._entries = 0  # in both

    # --- what clients say -------------------------------------------------------------------------

    def beat(self, link: RemotingLink, heartbeat: Heartbeat, now_ms: int) -> set[str]:
        """A client lives; gives the consumer groups whose members, or subscriptions, have changed.

        TOO_MANY_REQUESTS when there is no room for another one, and nothing has changed then.
        """
        self._check_room(heartbeat)
        client_id, language, version = heartbeat.client_id, link.language, link.version
        for group in heartbeat.producers:
            members = self._producers.setdefault(group, {})
            self._entries += client_id not in members
            members[client_id] = Client(client_id, link, language, version, now_ms)
        changed = set()
        for consumer in heartbeat.consumers:
            group = consumer.group
            known = self._groups.setdefault(group, {})
            before = known.get(client_id)
            self._entries += before is None
            known[client_id] = Member(client_id, link, language, version, now_ms, consumer)
            if (
                before is None
                or before.link is not link
                or before.consumer.subscriptions != consumer.subscriptions
            ):
                changed.add(group)
        return changed

    def _check_room(self, heartbeat: Heartbeat) -> None:
        more = len(heartbeat.producers) + len(heartbeat.consumers)
        if self._entries + more > CLIENTS_REMEMBERED_MAX and not self._knows_all(heartbeat):
            raise HorologError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"clientID: {self._entries} clients are in groups, and no more of them are taken",
                field="clientID",
                limit=f"{CLIENTS_REMEMBERED_MAX} clients",
            )

    def _knows_all(self, heartbeat: Heartbeat) -> bool:
        client_id = heartbeat.client_id
        return all(client_id in self._producers.get(g, ()) for g in heartbeat.producers) and all(
            client_id in self._groups.get(c.group, ()) for c in heartbeat.consumers
        )

    def leave(self, client_id: str, producer_group: str, consumer_group: str) -> set[str]:
        """A client leaves these groups ("": none); gives the consumer groups that have changed."""
        self._remove(self._producers, producer_group, client_id)
        gone = self._remove(self._groups, consumer_group, client_id)
        return {consumer_group} if gone else set()

    def lost(self, link: RemotingLink) -> set[str]:
        """A connection has ended; gives the consumer groups that have changed."""
        return self._remove_all(lambda client: client.link is link)

    def expire(self, now_ms: int) -> set[str]:
        """Forget whom nobody has heard of for too long; gives the consumer groups that have changed."""
        return self._remove_all(lambda client: now_ms - client.seen_ms > REMOTING_CLIENT_EXPIRY_MS)

    # --- who is there -----------------------------------------------------------------------------

    def members(self, group: str) -> list[Member]:
        """Of a consumer group."""
        return list(self._groups.get(group, {}).values())

    def member(self, group: str, client_id: str) -> Member | None:
        """One client of a consumer group."""
        return self._groups.get(group, {}).get(client_id)

    def producers(self, group: str) -> list[Client]:
        """Of a producer group."""
        return list(self._producers.get(group, {}).values())

    @property
    def consumer_groups(self) -> list[str]:
        """That have a member."""
        return sorted(self._groups)

    @property
    def producer_groups(self) -> list[str]:
        """That have a member."""
        return sorted(self._producers)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What a group wants of a topic: what its member says that has changed it last."""
        found = [
            member.consumer.subscriptions[topic]
            for member in self._groups.get(group, {}).values()
            if topic in member.consumer.subscriptions
        ]
        return max(found, key=lambda subscription: subscription.version, default=None)

    def subscriptions(self, group: str) -> dict[str, Subscription]:
        """What a group wants, by topic."""
        topics = {
            topic
            for member in self._groups.get(group, {}).values()
            for topic in member.consumer.subscriptions
        }
        found = {topic: self.subscription(group, topic) for topic in sorted(topics)}
        return {topic: subscription for topic, subscription in found.items() if subscription}

    def groups_of(self, topic: str) -> list[str]:
        """Consumer groups with a member that wants something of a topic."""
        return [group for group in sorted(self._groups) if self.subscription(group, topic)]

    # --- within -----------------------------------------------------------------------------------

    def _remove(self, groups: dict[str, dict[str, _Entry]], group: str, client_id: str) -> bool:
        members = groups.get(group)
        if members is None or client_id not in members:
            return False
        del members[client_id]
        self._entries -= 1
        if not members:
            del groups[group]
        return True

    def _remove_all(self, goes: Callable[[Client], bool]) -> set[str]:
        self._remove_from(self._producers, goes)
        return self._remove_from(self._groups, goes)

    def _remove_from(
        self, groups: dict[str, dict[str, _Entry]], goes: Callable[[Client], bool]
    ) -> set[str]:
        leaving = [
            (group, client.client_id)
            for group, members in groups.items()
            for client in members.values()
            if goes(client)
        ]
        for group, client_id in leaving:
            self._remove(groups, group, client_id)
        return {group for group, _ in leaving}

    def check_invariants(self) -> None:
        """No group is empty, and all entries are counted."""
        sizes = [len(members) for members in self._producers.values()]
        sizes += [len(members) for members in self._groups.values()]
        assert all(sizes)
        assert self._entries == sum(sizes)
