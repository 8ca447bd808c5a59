"""Options as Spark passes them, checked before any job starts: texts, by names in any case.

Every refusal names its option.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from horolog.admin.client import AdminClient
from horolog.errors import ErrorCode, HorologError
from horolog.places import local_place
from horolog.protocol.rocketmq.names import check_topic
from horolog.units import parse_duration_ms, parse_time_ms, parse_unsigned

EARLIEST, LATEST = "earliest", "latest"


def refused(option: str, why: str, limit: str = "") -> HorologError:
    """Build a BAD_REQUEST error that names the option."""
    return HorologError(
        ErrorCode.BAD_REQUEST, f"option {option!r}: {why}", field=option, limit=limit
    )


@dataclass(frozen=True)
class Offsets:
    """Where a read begins or ends: queue offsets, and a word for the queues without one."""

    word: str
    of_queue: dict[int, int]


def plain_name(name: str) -> str:
    """Return an option's name without case and underscores.

    Spark ignores the case of names, and Python users write `deliver_at_unit` for `deliverAtUnit`.
    """
    return name.lower().replace("_", "")


def _by_plain_name(
    options: Mapping[str, str], known: Iterable[str], ignored: Iterable[str]
) -> dict[str, str]:
    """Return the options by plain name.

    ignored  names of options that have no meaning here
    Errors: BAD_REQUEST for an option that is given twice, and for an unknown one, with the known
    option that the user may mean.
    """
    given = {plain_name(name): str(setting) for name, setting in options.items()}
    if len(given) < len(options):  # Spark itself ignores only the case
        plain = [plain_name(name) for name in options]
        twice = [name for name in options if plain.count(plain_name(name)) > 1]
        raise refused(twice[0], f"is given twice, also as {twice[1]!r}")
    of_plain = {plain_name(name): name for name in known}
    passed = {plain_name(name) for name in ignored}
    if "path" in of_plain and "paths" in given:  # Spark's name for load([…]) of several
        raise refused("path", "is one place; load several one by one, and unite the tables")
    for name in given:
        if name in of_plain or name in passed or "." in name:  # names with a dot are Spark's own
            continue
        close = get_close_matches(name, of_plain, 1)
        meant = f"; did you mean {of_plain[close[0]]}?" if close else ";"
        raise refused(
            name, f"there is no such option{meant} there are {', '.join(of_plain.values())}"
        )
    return given


class Given:
    """Options as Spark passes them: texts, looked up without regard to case and underscores."""

    def __init__(
        self, options: Mapping[str, str], known: Iterable[str], ignored: Iterable[str] = ()
    ) -> None:
        self._options = _by_plain_name(options, known, ignored)

    def text(self, name: str, default: str = "") -> str:
        """Return an option, or the default when the option is missing or empty."""
        return self._options.get(plain_name(name), "").strip() or default

    def count(self, name: str, default: int) -> int:
        """Return an option as a number above 0, or the default."""
        text = self.text(name)
        if not text:
            return default
        count = parse_unsigned(text)
        if count is None or not 0 < count < 1 << 62:
            raise refused(name, f"{text!r} is not a number above 0")
        return count

    def fails_on_loss(self) -> bool:
        """Return whether messages that are gone fail the read; they do unless told otherwise."""
        text = self.text("failOnDataLoss").lower()
        if text not in ("", "true", "false"):
            raise refused("failOnDataLoss", f"{text!r} is neither true nor false")
        return text != "false"

    def time_ms(self, name: str) -> int | None:
        """Return an option as epoch milliseconds; None when it is missing.

        The text is a time with its zone, or epoch milliseconds.
        """
        text = self.text(name)
        if not text:
            return None
        try:
            return parse_time_ms(text, field=name)
        except HorologError as error:
            raise refused(name, error.message.removeprefix(f"{name}: ")) from None

    def duration_ms(self, name: str, default: str) -> int:
        """Return a duration such as 90s in ms."""
        try:
            return parse_duration_ms(self.text(name, default), field=name)
        except HorologError as error:
            raise refused(name, error.message.removeprefix(f"{name}: ")) from None

    def timeout_ms(self) -> int:
        """Return how long a broker may be silent, in ms."""
        return self.duration_ms("timeout", "60s")

    def url(self, name: str) -> str:
        """Return the URL of a broker's admin API; "" when the option is missing."""
        text = self.text(name)
        if not text:
            return ""
        try:
            return AdminClient(text).url_as_given
        except HorologError as error:
            raise refused(name, error.message.removeprefix("--admin: ")) from None

    def directory(self, name: str) -> str:
        """Return the path of a directory on a disk that all tasks see; "" when it is missing.

        The option is a path or a file: URL.
        """
        text = self.text(name)
        return local_place(text, f"option {name!r}") if text else ""

    def topic(self) -> str:
        """Return the name of a topic; "" when the option is missing."""
        text = self.text("topic")
        try:
            return check_topic(text) if text else ""
        except HorologError as error:
            raise refused("topic", error.message.removeprefix("topic: "), error.limit) from None

    def queues(self) -> tuple[int, ...]:
        """Return the queue ids of a list such as 0,1,5, sorted."""
        text = self.text("queues")
        if not text:
            return ()
        queues = {parse_unsigned(word.strip()) for word in text.split(",")}
        if None in queues:
            raise refused("queues", f"{text!r} is not a list of queue numbers such as 0,1")
        return tuple(sorted(queue for queue in queues if queue is not None))

    def offsets(self, name: str, default: str) -> Offsets:
        """Return where to begin or end.

        The text is `earliest`, `latest`, or a JSON object of queue offsets such as {"0": 100}.
        Queues that the object does not name begin and end as `default` says.
        """
        text = self.text(name, default)
        if text.lower() in (EARLIEST, LATEST):
            return Offsets(text.lower(), {})
        try:
            found = json.loads(text)
            of_queue = {int(queue): offset for queue, offset in found.items()}
            if all(queue >= 0 and _is_offset(offset) for queue, offset in of_queue.items()):
                return Offsets(default, of_queue)
        except (ValueError, AttributeError, TypeError):
            pass
        raise refused(
            name, f'{text!r} is neither earliest nor latest nor offsets such as {{"0": 100}}'
        )


def _is_offset(given: object) -> bool:
    """Return whether the value is an integer from 0 on; Python's `true` is refused."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def check_times(from_ms: int | None, to_ms: int | None) -> None:
    """Raise BAD_REQUEST for an empty window, which would look as if nothing were stored."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise refused("to", "is not after `from`")
