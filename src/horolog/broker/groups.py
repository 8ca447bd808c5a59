"""Consumer groups: make, read, configure and delete them; each change is a record in the log."""

from __future__ import annotations

from horolog.broker.attributes import check_attributes
from horolog.broker.effects import Reply
from horolog.broker.shard import Shard
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import GROUP_ATTRIBUTES_MAX, GROUPS_MAX, QUEUES_MAX, TURN_GROUPS_MAX
from horolog.log.control_records import encode_group, encode_group_end
from horolog.protocol.commands import Received
from horolog.protocol.queue_commands import (
    RETRIES_MAX,
    DeleteGroup,
    FindGroup,
    GroupSettings,
    GroupView,
    ListGroups,
    PutGroup,
)
from horolog.protocol.rocketmq.names import check_group, is_system_group
from horolog.ready.groups import settings_row
from horolog.ready.polls import News, Waiter


class Groups:
    """The consumer groups of a shard; `records` collects control records for the turn's frame."""

    def __init__(self, shard: Shard, records: list[bytes]) -> None:
        self._shard = shard
        self._records = records

    def id_of(self, name: str) -> int:
        """Return the id of a group of clients, which is made if it does not exist."""
        group_id = self._shard.ready.groups.ids.get(name)
        if group_id is None or is_system_group(name):
            check_group(name)  # an internal group is of no client, whose leases would disturb it
        return self._make(name) if group_id is None else group_id

    def existing_id(self, name: str) -> int:
        """Return the id of a group, or raise GROUP_NOT_FOUND."""
        group_id = self._shard.ready.groups.ids.get(name)
        if group_id is None:
            raise group_not_found(name)
        return group_id

    def check_may_consume(self, group_id: int, *, broadcasts: bool = False) -> None:
        """Raise FORBIDDEN if the settings of a group forbid consuming, or broadcasting."""
        groups = self._shard.ready.groups
        settings = groups.settings_of(group_id)
        if not settings.consume_enable or (broadcasts and not settings.broadcast_enable):
            what = "consume by broadcasting" if settings.consume_enable else "consume"
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"consumer group {groups.names[group_id]!r} may not {what}: its settings say so",
                field="consumer group",
            )

    def make_own(self, name: str) -> None:
        """Make an internal group, whose name no client may use, unless it exists."""
        if name not in self._shard.ready.groups.ids:
            self._make(name)

    def _make(self, name: str) -> int:
        groups = self._shard.ready.groups
        if len(groups.ids) >= GROUPS_MAX:
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"there are {GROUPS_MAX} consumer groups already, the most that are allowed",
                field="consumer group",
                limit=f"{GROUPS_MAX} groups",
            )
        group_id = groups.last + 1
        groups.put(group_id, name)
        self._records.append(encode_group(group_id, name))
        return group_id

    def put(self, command: PutGroup) -> tuple[GroupView, list[Reply]]:
        """Make a group, or change its settings.

        Return its view, and the replies that end polls which may not go on.
        """
        settings = command.settings
        if settings is not None:
            _check(settings)
        group_id = self.id_of(command.name)
        groups = self._shard.ready.groups
        before = groups.settings_of(group_id)
        if settings is not None and settings != before:
            groups.put(group_id, command.name, settings)
            self._records.append(encode_group(group_id, command.name, settings_row(settings)))
            if before.orderly and not settings.orderly:
                self._wake_polls(group_id, command.name)
        ended: list[Reply] = []
        try:
            self.check_may_consume(group_id)
        except HorologError as error:
            ended = [Reply(waiter.token, error) for waiter in self._take_polls(command.name)]
        return self._view(group_id), ended

    def find(self, command: FindGroup) -> GroupView:
        """Return the view of one group, or raise GROUP_NOT_FOUND."""
        return self._view(self.existing_id(command.name))

    def page(self, command: ListGroups) -> list[GroupView]:
        """Return groups by name, at most as many as one turn may read."""
        groups = self._shard.ready.groups
        names = groups.after(command.after, min(command.limit, TURN_GROUPS_MAX))
        return [self._view(groups.ids[name]) for name in names]

    def delete(self, command: DeleteGroup) -> list[Reply]:
        """Delete a group and its progress; return the replies that end its parked polls.

        Receives end empty, pulls with GROUP_NOT_FOUND.
        """
        group_id = self.existing_id(command.name)
        waiting = self._take_polls(command.name)
        self._shard.ready.drop_group(group_id)
        self._records.append(encode_group_end(group_id, command.name))
        gone = group_not_found(command.name)
        return [Reply(each.token, Received([]) if each.group else gone) for each in waiting]

    def _wake_polls(self, group_id: int, name: str) -> None:
        """Let the receives of a group look at all queues again: no message is blocked any more."""
        polls, topics = self._shard.ready.polls, self._shard.topics.by_id
        for topic in sorted({each.topic for each in polls.of_group(name) if each.group}):
            polls.postpone(News(topic, group_id, list(range(len(topics[topic].queues)))))

    def _take_polls(self, name: str) -> list[Waiter]:
        """Remove and return all parked polls of a group."""
        polls = self._shard.ready.polls
        waiting = polls.of_group(name)
        for waiter in waiting:
            polls.leave(waiter)
        return waiting

    def _view(self, group_id: int) -> GroupView:
        ready, topics = self._shard.ready, self._shard.topics.by_id
        names = sorted(topics[topic].name for topic in ready.topics_of(group_id))
        return GroupView(ready.groups.names[group_id], ready.groups.settings_of(group_id), names)


def group_not_found(name: str) -> HorologError:
    """Build the error for a consumer group that does not exist."""
    return HorologError(
        ErrorCode.GROUP_NOT_FOUND, f"consumer group {name!r} does not exist", field="consumer group"
    )


def _check(settings: GroupSettings) -> None:
    """Raise BAD_REQUEST for settings out of range, or attributes too large or not JSON."""
    for name, value, lowest, highest in (
        ("retry_queues", settings.retry_queues, 0, QUEUES_MAX),
        ("retry_max", settings.retry_max, -1, RETRIES_MAX),
    ):
        if not lowest <= value <= highest:
            raise refused(
                name, f"{value}; {lowest} to {highest} are allowed", f"{lowest} to {highest}"
            )
    check_attributes(settings.attributes, GROUP_ATTRIBUTES_MAX)
