"""Adoptions: whole transactions of scheduled messages from another program, one record each.

    begin     is (app, version) new, and may the topic take it?  A staging directory is made
              (`server.adoptions`)
    …         the loading program writes runs into it (`delay.run.format`, adopted)
    commit    in a thread: check, sync and move the files (`broker.adopt.staged_files`); then in a
              step: append ADOPT
    apply     when that frame is committed the files are sources like all runs (`delay.far.adopted`)

The table of what that means for each version of an app is `broker.adopt.adoption_life`.

The record is the atomic point: before it there is nothing, from it on all rows.  Of every app the
highest committed version is kept, so a repeated commit is answered with "already"; and its
fingerprint, so that other rows under the same name are refused, and not dropped silently
(docs/decisions/0014-fingerprints.md).  Small transactions leave no files: their messages follow the
record in its frame, and are stored like sends.
"""

from __future__ import annotations

import numpy as np

from horolog.broker.adopt.adoption_life import TABLE, Event, Stage
from horolog.broker.effects import Reply
from horolog.broker.life.space import COPIES
from horolog.broker.send.message_frames import append_messages
from horolog.broker.send.sends import too_late
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.delay.far.adopted import AdoptedFile, Adoption
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    ADOPTION_APP_MAX,
    ADOPTION_APPS_MAX,
    ADOPTION_FILES_MAX,
    ADOPTION_FINGERPRINT_MAX,
)
from horolog.log.record import Kind
from horolog.log.stored import MESSAGE, MESSAGE_BYTES
from horolog.protocol.adoption_commands import (
    Adopt,
    Adopted,
    AdoptionBegun,
    AdoptionState,
    BeginAdoption,
)
from horolog.protocol.commands import MessageType, TopicType
from horolog.state_table import allows

VERSION_MAX = (1 << 63) - 1
ROWS_MAX = (1 << 32) - 1  # the row of an origin is u32
_TYPES = frozenset({TopicType.DELAY, TopicType.MIXED})


def committed(shard: Shard, app: str) -> int:
    """Return the highest committed version of an app; −1 if there is none."""
    return shard.adoptions.get(app, -1)


def stage_of(shard: Shard, app: str, version: int) -> Stage:
    """Return the state of a version; any below the highest committed one is committed."""
    under_way = (change.adopted for change in shard.uncommitted)
    if any(each and (each.app, each.version) == (app, version) for each in under_way):
        return Stage.APPENDED
    return Stage.OPEN if version > committed(shard, app) else Stage.COMMITTED


def note(adoptions: dict[str, int], fingerprints: dict[str, str], adoption: Adoption) -> None:
    """Note a committed version; forget the apps that have committed nothing for longest.

    adoptions     app → highest version committed; oldest first
    fingerprints  app → fingerprint of that version
    """
    app, highest = adoption.app, adoptions.pop(adoption.app, -1)
    adoptions[app] = max(adoption.version, highest)
    if adoption.version >= highest:
        fingerprints.pop(app, None)
        if adoption.fingerprint:
            fingerprints[app] = adoption.fingerprint
    while len(adoptions) > ADOPTION_APPS_MAX:
        oldest = next(iter(adoptions))
        del adoptions[oldest]
        fingerprints.pop(oldest, None)


def state_of(shard: Shard, app: str) -> AdoptionState:
    """Return what is known of an app."""
    return AdoptionState(committed(shard, app), shard.fingerprints.get(app, ""))


def is_repeat(shard: Shard, command: BeginAdoption | Adopt) -> bool:
    """Return whether that version or a later one is committed.

    Raise FORBIDDEN if it was committed with another fingerprint; if one of the two has none, they
    are not compared.
    """
    if allows(TABLE, stage_of(shard, command.app, command.version), Event.APPEND):
        return False
    state = state_of(shard, command.app)
    fingerprint = command.fingerprint
    if fingerprint and state.fingerprint and fingerprint != state.fingerprint:
        raise refused(
            "fingerprint",
            f"{command.app!r} has committed version {state.version} as {state.fingerprint!r}, and "
            f"this is {fingerprint!r}; nothing is changed: other rows need another name",
            code=ErrorCode.FORBIDDEN,
        )
    return True


def begin(shard: Shard, command: BeginAdoption, wall_ms: int) -> AdoptionBegun:
    """Answer whether a transaction may be staged.

    Raise TOPIC_NOT_FOUND, TYPE_CONFLICT, BAD_REQUEST, or FORBIDDEN as `is_repeat` does.
    """
    topic = _checked(shard, command)
    topic.check_writable()
    return AdoptionBegun(
        is_repeat(shard, command),
        topic.name,
        topic.id,
        len(topic.queues),
        wall_ms + shard.settings.max_delay_ms,
    )


def _checked(shard: Shard, command: BeginAdoption | Adopt) -> Topic:
    app, version, topic_name = command.app, command.version, command.topic
    if len(command.fingerprint.encode()) > ADOPTION_FINGERPRINT_MAX:
        raise _refused("fingerprint", "too long", f"up to {ADOPTION_FINGERPRINT_MAX} bytes")
    if not app.strip() or len(app.encode()) > ADOPTION_APP_MAX:
        raise _refused("app", "blank or too long", f"1 to {ADOPTION_APP_MAX} bytes")
    if not 0 <= version <= VERSION_MAX:
        raise _refused("version", f"{version} is out of range", f"0 to {VERSION_MAX}")
    topic = shard.topics.get(topic_name)
    if topic.type not in _TYPES:
        raise refused(
            "topic",
            f"{topic.name!r} takes {topic.type.value} messages, not "
            f"{MessageType.DELAY.name.lower()}",
            code=ErrorCode.TYPE_CONFLICT,
        )
    return topic


def _refused(field: str, why: str, limit: str = "") -> HorologError:
    return refused(field, f"{why}; {limit} is allowed" if limit else why, limit)


def space_for(command: BeginAdoption | Adopt) -> int:
    """Return the bytes that a command counts for against disk space, as bytes of a send.

    A begin counts for none.
    """
    if isinstance(command, BeginAdoption):
        return 0
    inlined = sum(map(len, command.records))
    # Files are on the disk already: only their hand-over needs space.
    return inlined + -(-command.soon_bytes // COPIES)


class Adoptions:
    """Collects the commits of one turn.

    `flush` appends the commits, after the topics that the turn has made.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._waiting: list[tuple[object, Adopt]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, token: object, command: Adopt) -> None:
        """Queue a commit."""
        self._waiting.append((token, command))

    def flush(self, wall_ms: int) -> list[Reply]:
        """Append the queued commits; return the replies, to hold until the commit."""
        waiting, self._waiting = self._waiting, []
        replies = []
        for token, command in waiting:
            try:
                result: object = self._commit(command, wall_ms)
            except HorologError as error:
                if error.fatal:
                    raise
                result = error.without_traceback()
            replies.append(Reply(token, result))
        return replies

    def _commit(self, command: Adopt, wall_ms: int) -> Adopted:
        shard = self._shard
        topic = _checked(shard, command)
        if is_repeat(shard, command):
            return Adopted(True)
        if (command.files or command.records) and command.topic_id != topic.id:
            raise _refused(
                "topic",
                f"{topic.name!r} was deleted and created again since the files were written; they "
                "are of the former one",
            )
        if len(command.files) > ADOPTION_FILES_MAX:
            raise _refused("files", f"{len(command.files)} files", f"up to {ADOPTION_FILES_MAX}")
        heads, queues = _heads(command.records, wall_ms)
        last_ms = max(
            [0, *(file.last_ms for file in command.files), *heads["due_ms"][-1:].tolist()]
        )
        if (refusal := too_late(last_ms, wall_ms, shard.settings.max_delay_ms)) is not None:
            raise refusal
        files, rows = [], 0
        for file in command.files:
            files.append(AdoptedFile(*file, rows))
            rows += file.rows
        rows += len(heads)
        if rows > ROWS_MAX:
            raise _refused("files", f"{rows} rows", f"up to {ROWS_MAX} in one transaction")
        app, version = command.app, command.version
        adoption = Adoption(
            -1, app, version, topic.id, len(topic.queues), rows, files, command.fingerprint
        )
        _check_promotion(shard, adoption)
        append_messages(shard, b"".join(command.records), heads, queues, wall_ms, adoption)
        note(shard.adoptions, shard.fingerprints, adoption)
        stage = stage_of(shard, command.app, command.version)
        assert stage is TABLE[Stage.OPEN, Event.APPEND], (command.app, command.version, stage)
        position = shard.uncommitted[-1].adopted
        assert position is not None
        return Adopted(False, rows, len(files), position.position)


def _check_promotion(shard: Shard, adoption: Adoption) -> None:
    """Check that a promotion brings exactly the pending messages of the tier.

    Raise TOO_MANY_REQUESTS while another step of the tier is under way.
    """
    if adoption.promotion is None:
        return
    shard.tier.check_promotion(adoption.promotion, adoption.topic, adoption.rows)
    if shard.is_tier_changing:
        raise refused(
            "number",
            f"another step of the {shard.tier.name} is under way",
            code=ErrorCode.TOO_MANY_REQUESTS,
        )


def _heads(records: list[bytes], wall_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """Return HEAD rows and queue ids of inlined messages; due ones become visible at once."""
    found = np.frombuffer(b"".join(record[:MESSAGE_BYTES] for record in records), MESSAGE)
    heads = found["head"].copy()
    heads["kind"] = np.where(heads["due_ms"] > wall_ms, Kind.SCHEDULED, Kind.MESSAGE)
    return heads, found["stored"]["queue_id"].astype(np.int64)
