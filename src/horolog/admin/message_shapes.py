"""Types of the results about messages: stored, pending, leased, recalled."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


class Problem(TypedDict):
    """An error inside an answer."""

    code: str
    message: str
    field: str
    limit: str
    retriable: bool


class Count(TypedDict):
    """A count of scheduled messages of a day, hour or second; or of a topic."""

    start_ms: NotRequired[int]
    start: NotRequired[str | None]
    topic: NotRequired[str]
    count: int


class Counts(TypedDict):
    """Exact counts; `total` is the sum of the rows."""

    topic: str
    total: int
    by: str
    rows: list[Count]


class PendingRow(TypedDict):
    """A scheduled message in a list: all but its payload."""

    deliver_at_ms: int
    deliver_at: str | None
    topic: str
    message_id: str
    tag: str
    keys: list[str]
    size_bytes: int
    origin: int
    recall_handle: str


class PendingPage(TypedDict):
    """Scheduled messages in the order of hand-over."""

    messages: list[PendingRow]


class Payload(TypedDict):
    """A payload: either text in `body`, or base64 in `body_base64`."""

    body: NotRequired[str]
    body_base64: NotRequired[str]


class StoredMessage(Payload):
    """A stored message; `deliver_at_ms` is 0 if it had no due time."""

    message_id: str
    topic: str
    tag: str
    keys: list[str]
    message_group: str
    properties: dict[str, str]
    born_ms: int
    deliver_at_ms: int
    deliver_at: str | None
    store_ms: int


class LeasedMessage(StoredMessage):
    """A leased message, and the handle that acks it."""

    queue_id: int
    queue_offset: int
    attempt: int
    receipt_handle: str


class LeasedMessages(TypedDict):
    """The messages that a receive has leased."""

    messages: list[LeasedMessage]


class KnownMessage(StoredMessage):
    """A message that was looked up: its state and place, and its recall handle while it waits."""

    state: str
    origin: int
    queue_id: int
    queue_offset: int
    recall_handle: str


class KnownMessages(TypedDict):
    """All copies with an id, or all messages with a key."""

    messages: list[KnownMessage]


class SentMessage(TypedDict):
    """A message that a send has stored; `queue_offset` is −1 while it waits."""

    message_id: str
    topic: str
    deliver_at_ms: int
    deliver_at: str | None
    queue_id: int
    queue_offset: int
    recall_handle: str


class Recalled(TypedDict):
    """The result of one recall."""

    status: str
    detail: str
    message_id: str
    deliver_at_ms: int
    deliver_at: str | None


class RecalledByKey(TypedDict):
    """The result of the recall of each message with a key."""

    topic: str
    cancelled: int
    results: list[Recalled]


class RecalledWindow(TypedDict):
    """How many messages the window matched, and how many were cancelled."""

    topic: str
    matched: int
    cancelled: int
    size_bytes: int
    dry_run: bool


class Rescheduled(SentMessage):
    """A message with its new due time and handle."""

    status: str
    detail: str
    copies: int


class MovedWindow(TypedDict):
    """Counts of messages matched and moved; some of the `left` have no room for a new due time."""

    topic: str
    matched: int
    moved: int
    left: int
    size_bytes: int
    dry_run: bool
    operation_id: str


class BulkRow(TypedDict):
    """A recall, reschedule or hand-over of a window under way: messages matched so far, and done."""

    act: str
    topic: str
    from_ms: int
    to_ms: int
    tag: str
    dry_run: bool
    operation_id: str
    matched: int
    done: int


class BulkUnderWay(TypedDict):
    """Recalls, reschedules and hand-overs of windows: the first runs, the others wait for it."""

    under_way: list[BulkRow]


class RefusedHandle(TypedDict):
    """A receipt handle that was refused."""

    receipt_handle: str
    error: Problem


class AckedHandles(TypedDict):
    """How many receipt handles were acknowledged, and the errors of the others."""

    acked: int
    refused: list[RefusedHandle]


class FoundRow(TypedDict):
    """A message in a list of a search: all but its payload and properties."""

    message_id: str
    topic: str
    tag: str
    keys: list[str]
    state: str
    deliver_at_ms: int
    deliver_at: str | None
    store_ms: int
    store: str | None
    queue_id: int
    queue_offset: int
    size_bytes: int
    recall_handle: str


class FoundPage(TypedDict):
    """A page of a search; `next` is null at the end."""

    messages: list[FoundRow]
    next: str | None


class Copy(TypedDict):
    """One of the messages with an id."""

    state: str
    deliver_at_ms: int
    deliver_at: str | None
    origin: int
    queue_id: int
    queue_offset: int
    recall_handle: str


class GroupState(TypedDict):
    """The state of a message in a consumer group."""

    group: str
    state: str
    attempt: int | None
    leased_at_ms: int | None
    leased_at: str | None
    leased_until_ms: int | None
    leased_until: str | None


class Event(TypedDict):
    """An event in the history of a message."""

    at_ms: int | None
    at: str | None
    event: str
    detail: dict[str, Any]


class MessageStory(TypedDict):
    """A message whole, with all known events of its history."""

    state: str
    message_id: str
    topic: str
    tag: str
    keys: list[str]
    message_group: str
    properties: dict[str, str]
    born_ms: int
    born: str | None
    deliver_at_ms: int
    deliver_at: str | None
    store_ms: int
    store: str | None
    size_bytes: int
    compressed: bool
    body: str  # base64
    body_text: NotRequired[str]
    origin: int
    queue_id: int
    queue_offset: int
    recall_handle: str
    copies: list[Copy]
    groups: list[GroupState]
    history: list[Event]
    history_complete: bool
