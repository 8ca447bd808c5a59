"""Make, change and delete topics: each command becomes one record, or is refused with a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from horolog.broker import queries
from horolog.broker.attributes import check_attributes
from horolog.broker.consume.renewals import Renewals
from horolog.broker.effects import Reply
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic, Topics
from horolog.delay import pending
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import QUEUES_MAX, TOPIC_ATTRIBUTES_MAX, TOPICS_MAX
from horolog.log.control_records import encode_topic, encode_topic_end
from horolog.protocol.commands import ChangeTopic, CreateTopic, DeleteTopic, TopicType, TopicView
from horolog.protocol.rocketmq.late_policy import check_has_room
from horolog.protocol.rocketmq.names import GIVEN_UP_TOPIC, check_may_be_made
from horolog.protocol.topic_commands import PERM_READ, TopicSettings, check_perm
from horolog.units import counted

_ID_MAX = (1 << 32) - 1  # an id is never assigned twice, and has 32 bits in a record


class PlannedTopic(NamedTuple):
    """The definition of a topic from now on, as its record in the log states it."""

    id: int
    name: str
    type: TopicType
    queues: int
    settings: TopicSettings


class TopicChanges:
    """The topics of a shard; `records` collects control records for the turn's frame."""

    def __init__(self, shard: Shard, records: list[bytes]) -> None:
        self._shard = shard
        self._records = records

    def make(self, command: CreateTopic | ChangeTopic) -> tuple[TopicView, list[Reply]]:
        """Make or change a topic.

        Return its new view, and the replies that end polls which may not go on.
        """
        topics = self._shard.topics
        planned = plan(topics, command)
        self._check_schedules(planned)
        is_new = command.name not in topics.by_name
        ended: list[Reply] = []
        if planned is not None:
            topic = topics.put(*planned)
            self._records.append(encode_topic(topic.row()))
            ended = self._end_polls(topic)
        topic = topics.get(command.name)
        view = queries.view_topic(self._shard, topic, with_pending=not is_new)
        return (replace(view, pending=0) if is_new else view), ended  # none are pending yet

    def _check_schedules(self, planned: PlannedTopic | None) -> None:
        """Raise FORBIDDEN if the type of a topic changes that a schedule sends to.

        The schedule was checked against the old type.
        """
        known = None if planned is None else self._shard.topics.by_id.get(planned.id)
        if planned is None or known is None or planned.type is known.type:
            return
        schedule = self._shard.schedules.of_topic(known.name)
        if schedule:
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"type: that of topic {known.name!r} cannot be changed: schedule {schedule!r} "
                "sends to it",
                field="type",
            )

    def make_given_up(self) -> None:
        """Make the topic of transactions that were given up, if missing; closed to sends."""
        topics = self._shard.topics
        if GIVEN_UP_TOPIC not in topics.by_name:
            settings = TopicSettings(perm=PERM_READ)
            topic = topics.put(topics.last + 1, GIVEN_UP_TOPIC, TopicType.NORMAL, 1, settings)
            self._records.append(encode_topic(topic.row()))

    def _end_polls(self, topic: Topic) -> list[Reply]:
        """End all parked polls of a topic that is not readable any more; return their replies."""
        try:
            topic.check_readable()
        except HorologError as error:
            return self._refuse(topic, error)
        return []

    def _refuse(self, topic: Topic, error: HorologError) -> list[Reply]:
        """End all parked polls of a topic with an error; return their replies."""
        polls = self._shard.ready.polls
        waiting = polls.of_topic(topic.id)
        for waiter in waiting:
            polls.leave(waiter)
        return [Reply(waiter.token, error) for waiter in waiting]

    def check_may_delete(self, command: DeleteTopic) -> None:
        """Check whether a topic may be deleted.

        Raise TOPIC_NOT_FOUND; FORBIDDEN while a schedule sends to the topic; DISK_FULL while there
        are messages that cannot be filed, perhaps of this topic.
        """
        topic = self._shard.topics.get(command.name)
        schedule = self._shard.schedules.of_topic(topic.name)
        if schedule:
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"topic {topic.name!r} cannot be deleted: schedule {schedule!r} sends to it; "
                "remove it first",
                field="topic",
            )
        if self._shard.delay.stalled:
            raise HorologError(
                ErrorCode.DISK_FULL,
                f"disk: full; messages cannot be filed, so topic {topic.name!r} cannot be deleted "
                "just now",
            )

    def is_under_way(self, name: str) -> bool:
        """Return whether unapplied frames have messages or an adoption of a topic."""
        topic, shard = self._shard.topics.get(name), self._shard
        topic_id = topic.id
        unfiled = [each.unfiled for each in shard.uncommitted if each.unfiled]
        if any(bool((each.heads["topic"] == topic_id).any()) for each in unfiled):
            return True
        return any(
            any(of_topic is topic for of_topic, _, _ in change.units)
            or (change.adopted is not None and change.adopted.topic == topic_id)
            for change in shard.uncommitted
        )

    def delete(self, command: DeleteTopic, renewals: Renewals) -> list[Reply]:
        """Delete a topic of which nothing is under way (`waits`); return the ends of its polls.

        Raise TOPIC_NOT_FOUND; FORBIDDEN while transactions of the topic are open, or its messages
        wait to be handed over.
        """
        shard = self._shard
        topic = shard.topics.get(command.name)
        if open_ones := shard.halves.in_topic(topic.id):
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"topic {topic.name!r} cannot be deleted: transactions of it are open "
                f"({open_ones}); commit them or roll them back first",
                field="topic",
            )
        waiting = pending.by_topic(shard.delay).get(topic.id, 0)
        if waiting:
            raise HorologError(
                ErrorCode.FORBIDDEN,
                f"topic {topic.name!r} cannot be deleted: messages of it wait to be handed over "
                f"({waiting}); recall them first, or let them become due",
                field="pending",
            )
        gone = HorologError(
            ErrorCode.TOPIC_NOT_FOUND, f"topic {topic.name!r} was deleted", field="topic"
        )
        ended = self._refuse(topic, gone)
        renewals.release_topic(topic.id)
        shard.drop_topic(topic.id, shard.log.end)
        self._records.append(encode_topic_end(topic.id, topic.name))
        return ended


def plan(topics: Topics, command: CreateTopic | ChangeTopic) -> PlannedTopic | None:
    """Return what the topic shall become; None if it is so; raise HorologError if refused."""
    check_may_be_made(command.name)
    if isinstance(command, ChangeTopic):
        return _plan_change(topics.get(command.name), command)
    _check_queues(command.queues)
    if command.settings is not None:
        _check_settings(command.name, command.settings, command.queues)
    known = topics.by_name.get(command.name)
    if known is None:
        return _plan_new(topics, command)
    _check_is_the_same(known, command)
    return None


def _plan_new(topics: Topics, command: CreateTopic) -> PlannedTopic:
    if len(topics.by_name) >= TOPICS_MAX or topics.last >= _ID_MAX:
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"there are {TOPICS_MAX} topics already, the most that are allowed",
            field="topic",
            limit=f"{TOPICS_MAX} topics",
        )
    settings = command.settings or TopicSettings()
    return PlannedTopic(topics.last + 1, command.name, command.type, command.queues, settings)


def _plan_change(known: Topic, command: ChangeTopic) -> PlannedTopic | None:
    there = len(known.queues)
    type = command.type or known.type
    _check_may_become(known, type)
    queues = command.queues or there
    _check_queues(queues)
    _check_not_fewer("queues", known.name, there, queues)
    settings = known.settings if command.settings is None else command.settings
    _check_settings(known.name, settings, queues)
    for name in ("read_queues", "write_queues"):
        before = getattr(known.settings, name) or there
        _check_not_fewer(name, known.name, before, getattr(settings, name) or queues)
    if (type, queues, settings) == (known.type, there, known.settings):
        return None
    return PlannedTopic(known.id, known.name, type, queues, settings)


def _check_queues(queues: int) -> None:
    if not 1 <= queues <= QUEUES_MAX:
        raise refused("queues", f"{queues}; a topic has 1 to {QUEUES_MAX}", f"1 to {QUEUES_MAX}")


def _check_not_fewer(field: str, name: str, there: int, wanted: int) -> None:
    if wanted < there:
        raise refused(
            field,
            f"topic {name!r} has {there}, and their number cannot be lowered to {wanted}",
            f"{there} to {QUEUES_MAX}",
        )


def _check_settings(name: str, settings: TopicSettings, queues: int) -> None:
    check_has_room(name, settings.late_policy, "late")
    check_perm(settings.perm, settings.perm)
    for field in ("read_queues", "write_queues"):
        value = getattr(settings, field)
        if not 0 <= value <= queues:
            raise refused(
                field, f"{value}; the topic has {counted(queues, 'queue')}", f"0 (all) to {queues}"
            )
    check_attributes(settings.attributes, TOPIC_ATTRIBUTES_MAX)


def _check_may_become(known: Topic, type: TopicType) -> None:
    """Raise TOPIC_EXISTS if the type changes and consumers may rely on the known one."""
    if type is not known.type and known.type is not TopicType.MIXED:
        raise _other_type(known, type)


def _other_type(known: Topic, type: TopicType) -> HorologError:
    return HorologError(
        ErrorCode.TOPIC_EXISTS,
        f"topic {known.name!r} exists with type {known.type.value}; "
        f"a type cannot be changed to {type.value}",
        field="type",
    )


def _check_is_the_same(known: Topic, command: CreateTopic) -> None:
    """Raise TOPIC_EXISTS, naming the first difference, unless the topic is as wanted."""
    if known.type is not command.type:
        raise _other_type(known, command.type)
    there = len(known.queues)
    if there != command.queues:
        raise HorologError(
            ErrorCode.TOPIC_EXISTS,
            f"topic {known.name!r} exists with {there} {'queue' if there == 1 else 'queues'}, "
            f"not {command.queues}; change it to have more (`horolog topic set`, "
            "PATCH /v1/topics/{name})",
            field="queues",
        )
    if command.settings is not None and command.settings != known.settings:
        raise HorologError(
            ErrorCode.TOPIC_EXISTS,
            f"topic {known.name!r} exists with the permission {known.settings.perm}, or with other "
            "settings; change it (`horolog topic set`, PATCH /v1/topics/{name})",
            field="settings",
        )
