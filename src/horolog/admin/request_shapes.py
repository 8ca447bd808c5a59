"""Models of JSON request bodies: strict, without unknown fields or conversions, with limits."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from horolog import limits
from horolog.errors import refused
from horolog.protocol.commands import TopicType
from horolog.protocol.queue_commands import RETRIES_MAX
from horolog.units import DURATION_MAX_MS, TIME_MAX_MS

_SECONDS = range(10**9, 10**10)  # of 2001 to 2286; in milliseconds, days in 1970


def _no_seconds(given_ms: int) -> int:
    if given_ms in _SECONDS:
        raise PydanticCustomError(
            "seconds", "these are seconds; milliseconds since 1970 are needed"
        )
    return given_ms


# A time that is wanted, not one to look something up by; 0 means none.
NewMs = Annotated[int, Field(ge=0, le=TIME_MAX_MS), AfterValidator(_no_seconds)]
# When a message shall be due; a time that has passed means at once.
NewDueMs = Annotated[int, Field(ge=1, le=TIME_MAX_MS), AfterValidator(_no_seconds)]


class Body(BaseModel):
    """A JSON object without unknown fields and without conversions ("5" is not a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def payload_of(text: str | None, coded: str | None) -> bytes:
    """Return the bytes of `body` or `body_base64`; BAD_REQUEST for both or neither."""
    if (text is None) == (coded is None):
        raise refused("body", "give either body (text) or body_base64")
    if text is not None:
        return text.encode()
    try:
        return base64.b64decode(coded or "", validate=True)
    except ValueError as error:
        raise refused("body_base64", f"not base64: {error}") from None


class TopicBody(Body):
    """POST /v1/topics; a topic for messages with a due time needs the type `delay` or `mixed`."""

    name: str
    type: TopicType = Field(TopicType.NORMAL, strict=False)
    queues: int = Field(limits.QUEUES_DEFAULT, ge=1, le=limits.QUEUES_MAX)
    perm: int | None = None
    late: str | None = None
    late_after_ms: int | None = Field(None, ge=0, le=limits.LATE_AFTER_MAX_MS)
    multi_tag: bool | None = None
    order: bool | None = None
    read_queues: int | None = Field(None, ge=0, le=limits.QUEUES_MAX)
    write_queues: int | None = Field(None, ge=0, le=limits.QUEUES_MAX)


class ChangeTopicBody(Body):
    """PATCH /v1/topics/{name}: at least one of these settings."""

    queues: int | None = Field(None, ge=1, le=limits.QUEUES_MAX)
    perm: int | None = None
    late: str | None = None
    late_after_ms: int | None = Field(None, ge=0, le=limits.LATE_AFTER_MAX_MS)
    multi_tag: bool | None = None
    order: bool | None = None
    read_queues: int | None = Field(None, ge=0, le=limits.QUEUES_MAX)
    write_queues: int | None = Field(None, ge=0, le=limits.QUEUES_MAX)


class MessageBody(Body):
    """POST /v1/messages: one message, scheduled with `deliver_at_ms` or `in_ms`, else sent at once."""

    topic: str
    body: str | None = None
    body_base64: str | None = None
    deliver_at_ms: NewDueMs | None = None
    in_ms: int | None = Field(None, ge=0, le=DURATION_MAX_MS)
    tag: str | None = None
    keys: list[str] = []
    message_group: str | None = None
    properties: dict[str, str] = {}

    def payload(self) -> bytes:
        """Return the bytes of the message; BAD_REQUEST for both or neither of the two bodies."""
        return payload_of(self.body, self.body_base64)


class RecallBody(Body):
    """POST /v1/recall: a message, by handle, or by topic, message id and due time."""

    handle: str | None = None
    topic: str | None = None
    message_id: str | None = None
    deliver_at_ms: int | None = Field(None, ge=1, le=TIME_MAX_MS)


class RecallKeyBody(Body):
    """POST /v1/recall/key: all messages of a topic with a key."""

    topic: str
    key: str = Field(min_length=1)


class WindowBody(Body):
    """All messages of a topic that are due in [from_ms, to_ms), or only those with a tag."""

    topic: str
    from_ms: int = Field(ge=0, le=TIME_MAX_MS)
    to_ms: int = Field(ge=1, le=TIME_MAX_MS)
    tag: str = Field("", min_length=1)  # an unset variable of a script must not mean all messages
    dry_run: bool = False


class RecallManyBody(WindowBody):
    """POST /v1/recall/window: all messages of a topic that are due in [from_ms, to_ms)."""


class RescheduleBody(RecallBody):
    """POST /v1/reschedule: a message as for a recall, and its new due time, or how long from now."""

    new_deliver_at_ms: NewDueMs | None = None
    in_ms: int | None = Field(None, ge=0, le=DURATION_MAX_MS)
    expected_deliver_at_ms: int | None = Field(None, ge=1, le=TIME_MAX_MS)


class HandOverBody(RecallBody):
    """POST /v1/hand-over: a message as for a recall, to be handed over now."""

    expected_deliver_at_ms: int | None = Field(None, ge=1, le=TIME_MAX_MS)


class HandOverManyBody(WindowBody):
    """POST /v1/hand-over/window: all messages of a topic due in [from_ms, to_ms), handed over now."""


class RescheduleManyBody(HandOverManyBody):
    """POST /v1/reschedule/window: the messages of a window, and when they shall be due.

    Either all are due at one time, or each is so much later or earlier.  `operation_id` names a
    shift: no message is shifted twice under the same name.
    """

    new_deliver_at_ms: NewDueMs | None = None
    shift_ms: int | None = Field(None, ge=-DURATION_MAX_MS, le=DURATION_MAX_MS)
    operation_id: str = Field("", max_length=limits.MOVE_NAME_MAX, pattern="^[A-Za-z0-9._-]*$")


class GroupBody(Body):
    """PUT /v1/groups/{group}: the settings to change; omitted ones stay as they are."""

    orderly: bool | None = None
    retry_max: int | None = Field(None, ge=0, le=RETRIES_MAX)


class ResetBody(Body):
    """POST /v1/groups/{group}/reset: the new place, for all queues of the topic or one.

    The place is `earliest`, `latest` or a time; or an offset of one queue.
    """

    topic: str
    to: str | None = None
    queue: int | None = Field(None, ge=0, lt=limits.QUEUES_MAX)
    offset: int | None = Field(None, ge=0, le=(1 << 62))
    dry_run: bool = False


class RedriveBody(Body):
    """POST /v1/groups/{group}/dead-letters/redrive: letters with these ids, or all from a place on."""

    to: str | None = None
    ids: list[str] | None = Field(None, min_length=1, max_length=limits.ADMIN_LIST_MAX)
    first: str | None = Field(None, alias="from")
    limit: int = Field(limits.REDRIVE_MAX, ge=1, le=limits.REDRIVE_MAX)
    deliver_at_ms: NewDueMs | None = None
    in_ms: int | None = Field(None, ge=0, le=DURATION_MAX_MS)
    rate: int | None = Field(None, ge=1, le=limits.REDRIVE_RATE_MAX)
    dry_run: bool = False


class ReceiveBody(Body):
    """POST /v1/receive.

    Lease up to `limit` messages for `invisible_ms`, waiting up to `poll_ms` for a first.
    """

    topic: str
    group: str
    filter: str = "*"
    limit: int = Field(1, ge=1, le=limits.RECEIVE_BATCH_MAX)
    invisible_ms: int = Field(
        limits.INVISIBLE_DEFAULT_MS, ge=limits.INVISIBLE_MIN_MS, le=limits.INVISIBLE_MAX_MS
    )
    poll_ms: int = Field(0, ge=0, le=limits.POLL_MAX_MS)


class AckBody(Body):
    """POST /v1/ack: the handles of leased messages."""

    topic: str
    group: str
    receipt_handles: list[str] = Field(min_length=1, max_length=limits.MESSAGES_PER_SEND_MAX)


class BackupBody(Body):
    """POST /v1/backup: into a directory of the broker's machine; `full` copies everything again."""

    directory: str = Field(min_length=1, max_length=4_096)
    full: bool = False


class AdoptionBody(Body):
    """POST /v1/adoptions/begin: a transaction of adoptions.

    `join`: every such call returns the same token, also after a restart; for writers without a
    driver. `fingerprint`: of the rows to commit; a repeat with another one is refused.
    """

    app: str = Field(min_length=1, max_length=limits.ADOPTION_APP_MAX)
    version: int = Field(ge=0, le=(1 << 63) - 1)
    topic: str
    join: bool = False
    fingerprint: str = Field(default="", max_length=limits.ADOPTION_FINGERPRINT_MAX)


class StagedBody(Body):
    """One staged file of a commit."""

    name: str
    rows: int = Field(ge=1, le=(1 << 32) - 1)
    bytes: int = Field(ge=1, le=(1 << 63) - 1)
    first_ms: int = Field(ge=0, le=TIME_MAX_MS)
    last_ms: int = Field(ge=0, le=TIME_MAX_MS)
    crc32: int = Field(ge=0, le=(1 << 32) - 1)


class CommitBody(AdoptionBody):
    """POST /v1/adoptions/commit: the files of a transaction."""

    token: str
    files: list[StagedBody] = Field(max_length=limits.ADOPTION_FILES_MAX)


class AbortBody(Body):
    """POST /v1/adoptions/abort: a transaction."""

    app: str = Field(min_length=1, max_length=limits.ADOPTION_APP_MAX)
    version: int = Field(ge=0, le=(1 << 63) - 1)
    token: str


class BeginOffloadBody(Body):
    """POST /v1/offloads/begin: all messages due at or after `from_ms`, which is a whole hour."""

    app: str = Field(min_length=1, max_length=limits.ADOPTION_APP_MAX)
    from_ms: int = Field(ge=0, le=TIME_MAX_MS)


class OffloadBody(Body):
    """POST /v1/offloads/abort: an offload."""

    number: int = Field(ge=1, le=(1 << 63) - 1)


class CommitOffloadBody(OffloadBody):
    """POST /v1/offloads/commit: what the table holds of the offload."""

    rows: int = Field(ge=0, le=(1 << 63) - 1)
    checksum: str = Field(pattern="^[0-9a-f]{16}$")
    uri: str = Field(alias="lake", min_length=1, max_length=4_096)


class AdvanceBody(Body):
    """POST /v1/clock/advance: how far to move the simulated clock."""

    by_ms: int = Field(ge=0, le=DURATION_MAX_MS)
