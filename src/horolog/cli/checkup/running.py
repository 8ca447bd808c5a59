"""Checks of a running broker: a function from its answers (`answers`) to checks."""

from __future__ import annotations

import re
from typing import Any

from horolog import __version__
from horolog.admin.client import AdminClient
from horolog.admin.status import Silence, UnreachableError
from horolog.cli.checkup.answers import Answers, gather
from horolog.cli.checkup.check import Check, State
from horolog.cli.progress import size_text
from horolog.errors import HorologError
from horolog.limits import CONNECTIONS_MAX, DAY_MS, HOUR_MS, MIB, MINUTE_MS, SECOND_MS
from horolog.storage.descriptors import reserve_of
from horolog.units import counted

# How early or late messages are handed over by the operator's clock
CLOCK_OFF_MS = 1_000
LATE_MS = 1_000  # from here on hand-over is late; it takes a few milliseconds
LAG_MS = 10 * MINUTE_MS
DISK_FREE_MIN = 2_048 * MIB  # a segment of the log, the next one, and files of the next hours
CERTIFICATE_LEFT_MS = 14 * DAY_MS  # time to order one
FILES_SHARE = 80  # percent of the limit on open files
_NAMED = 5  # most groups to name in a sentence
# Advice for a problem, by a pattern of its text.
_ADVICE = (
    (r"quarantined", "see docs/guides/operate.md#damage; `horolog inspect` shows what can be read"),
    (r"\bdisk:|bytes are free", "make room, or lower --retention; sends are accepted again without a restart"),
    (r"lake|offload|tier", "make the lake readable again, then run this again: docs/guides/lake.md"),
    (r"cannot be read|hole|CRC|damaged|missing",
     "stop the broker and run `horolog verify DIR`: docs/guides/operate.md#rotten-messages"),
)  # fmt: skip
_SILENCE_ADVICE = {
    Silence.NO_ANSWER: "start it, or name another one with --admin; `horolog doctor --data-dir DIR` looks at a stopped one",
    Silence.HANGS: "its process is stopped or overloaded: look at CPU, disk and its log",
    Silence.STRANGER: "name the admin port of the broker with --admin; its ready line has it",
}


def check_running(client: AdminClient) -> list[Check]:
    """Check the broker that the client speaks to."""
    try:
        answers = gather(client)
    except UnreachableError as error:
        return [Check("broker", State.WRONG, str(error), _SILENCE_ADVICE[error.silence])]
    except HorologError as error:
        do = (
            "name an administrator: --admin http://KEY:SECRET@HOST:PORT, or HOROLOG_ACCESS_KEY and "
            "HOROLOG_SECRET_KEY"
        )
        return [Check("broker", State.WRONG, f"{client.url}: {error.message}", do)]
    return examine(answers)


def examine(answers: Answers) -> list[Check]:
    """Return every check, in the order in which an operator would look."""
    name = f"{answers.broker['broker_name']}, epoch {answers.broker['epoch']}"
    return [
        Check(
            "broker", State.OK, f"{name}, {counted(answers.broker['pending'], 'message')} pending"
        ),
        _version(answers),
        _clock(answers),
        *_health(answers),
        *_repairs(answers),
        *_lateness(answers),
        *_disk(answers),
        *_files(answers),
        *_exposed(answers),
        *_certificate(answers),
        *_groups(answers),
        _dead_letters(answers),
    ]


def _version(answers: Answers) -> Check:
    theirs = answers.broker["version"]
    if theirs == __version__:
        return Check("version", State.OK, theirs)
    seen = f"the broker is horolog {theirs}, this command {__version__}"
    return Check("version", State.WARNING, seen, "use the `horolog` of the broker's version")


def _clock(answers: Answers) -> Check:
    clock = answers.clock
    if clock["kind"] == "simulated":
        return Check(
            "clock",
            State.NOTE,
            f"simulated, at {clock['wall']}: moves only by `horolog clock advance`",
        )
    off_ms = int(clock["wall_ms"]) - answers.now_ms
    if abs(off_ms) <= CLOCK_OFF_MS + answers.slack_ms:
        return Check(
            "clock", State.OK, f"within {CLOCK_OFF_MS + answers.slack_ms} ms of this machine's"
        )
    side = "ahead of" if off_ms > 0 else "behind"
    seen = f"{abs(off_ms) / SECOND_MS:.1f} s {side} this machine's: {clock['wall']}"
    return Check(
        "clock", State.WARNING, seen, "let NTP set both clocks: due times are by the broker's"
    )


def _health(answers: Answers) -> list[Check]:
    found = []
    problems = [str(text) for text in answers.broker["problems"]]
    for check in answers.health["checks"]:
        name = str(check["name"])
        if check["ok"]:
            found.append(Check(name, State.OK, "ok"))
        elif not problems or name not in ("store", "problems"):
            found.append(
                Check(name, State.WRONG, str(check["detail"]), _advice(str(check["detail"])))
            )
    return found + [Check("problem", State.WRONG, text, _advice(text)) for text in problems]


def _repairs(answers: Answers) -> list[Check]:
    """Note repairs: nothing is lost, but what rots once may rot again, where there is no copy."""
    repairs = int(answers.broker.get("repairs", 0))
    if not repairs:
        return []
    seen = f"{counted(repairs, 'damaged part')} repaired since the directory was created"
    do = "check the disk (smartctl, dmesg); lines `repaired` of the broker's log say where"
    return [Check("repairs", State.NOTE, seen, do)]


def _advice(problem: str) -> str:
    for pattern, do in _ADVICE:
        if re.search(pattern, problem):
            return do
    return "look at the broker's log and at docs/guides/operate.md#health"


def _lateness(answers: Answers) -> list[Check]:
    overview = answers.overview
    if overview is None:
        return []
    overdue_ms = int(overview["overdue_ms"])
    if overdue_ms > LATE_MS:
        seen = f"a message has been due for {_ago(overdue_ms)} and is not handed over"
        do = "look at CPU and disk; hand-over goes on in order as fast as they allow"
        return [Check("lateness", State.WRONG, seen, do)]
    lateness = overview["lateness"]
    if not lateness or not any(lateness["minute"]):
        return [Check("lateness", State.OK, "nothing is overdue")]
    p99_ms = lateness["minute_p99_ms"]
    if p99_ms is None or p99_ms > LATE_MS:
        bound = p99_ms or lateness["bounds_ms"][-1]
        seen = (
            f"99 % of the last minute: {'more than' if p99_ms is None else 'up to'} {bound:,} ms "
            "late"
        )
        do = "look at CPU and disk, and at the hottest seconds: horolog pending --by second"
        return [Check("lateness", State.WARNING, seen, do)]
    return [Check("lateness", State.OK, f"99 % of the last minute within {p99_ms:,} ms")]


def _disk(answers: Answers) -> list[Check]:
    disk = (answers.overview or {}).get("disk")
    if not disk:
        return []
    if disk["is_full"]:
        return [Check("disk", State.WRONG, "full: sends are refused", _ROOM)]
    return [disk_check(int(disk["headroom"]))]


_ROOM = (
    "make room, or lower --retention; pending messages are kept, and sends are accepted again "
    "without a restart"
)


def disk_check(room: int) -> Check:
    """Check the bytes left until sends are refused."""
    seen = f"room for {size_text(room)}"
    if room >= DISK_FREE_MIN:
        return Check("disk", State.OK, seen)
    return Check("disk", State.WARNING, seen, _ROOM)


def _files(answers: Answers) -> list[Check]:
    process = answers.process
    if process is None or not process.files_max:
        return []
    seen = (
        f"{process.files:,} open, connections up to {process.files_max:,} (process {process.pid})"
    )
    if process.files * 100 > process.files_max * FILES_SHARE:
        do = (
            "raise the limit (LimitNOFILE= of the unit, ulimit -n) and start the broker again; "
            "until then it refuses more connections"
        )
        return [Check("files", State.WARNING, seen, do)]
    most = process.files_hard or process.files_max
    if most - reserve_of(most) < CONNECTIONS_MAX:
        do = (
            f"raise it (LimitNOFILE=, ulimit -n) for the {CONNECTIONS_MAX:,} connections of the "
            "default setting"
        )
        return [Check("files", State.NOTE, seen, do)]
    return [Check("files", State.OK, seen)]


def _exposed(answers: Answers) -> list[Check]:
    process = answers.process
    if answers.guarded:
        return [Check("access", State.OK, "only clients with a key can connect")]
    if process is None:
        return [
            Check(
                "access",
                State.NOTE,
                "off: everybody who reaches the ports may do everything",
                _CLOSE,
            )
        ]
    if not process.open_ports:
        return [Check("access", State.OK, "off, and only this machine can connect")]
    ports = ", ".join(f"{address}:{port}" for address, port in process.open_ports)
    seen = f"off, and other machines can connect to {ports}: everybody may do everything"
    return [Check("access", State.WARNING, seen, _CLOSE)]


_CLOSE = "make an access file (--access, docs/guides/access.md), or listen on 127.0.0.1"


def _certificate(answers: Answers) -> list[Check]:
    """Check the certificate of the broker's files; clients refuse one that has ended."""
    ends_ms = (answers.overview or {}).get("certificate_ends_ms")
    if ends_ms is None:
        return []
    left_ms = int(ends_ms) - answers.now_ms
    do = "replace the file of --tls-cert, then `systemctl reload horolog` (SIGHUP)"
    if left_ms <= 0:
        seen = f"expired {_ago(-left_ms)} ago: clients that check it cannot connect"
        return [Check("certificate", State.WRONG, seen, do)]
    if left_ms < CERTIFICATE_LEFT_MS:
        return [Check("certificate", State.WARNING, f"expires in {_ago(left_ms)}", do)]
    return [Check("certificate", State.OK, f"expires in {_ago(left_ms)}")]


def _groups(answers: Answers) -> list[Check]:
    rows = answers.groups
    found = []
    alone = [row for row in rows if row["waiting"] and not row["members"]]
    if alone:
        seen = f"{_names(alone)} with messages and no consumer connected"
        do = "start their consumers, or `horolog group delete` those that are no longer needed"
        found.append(Check("groups", State.WARNING, seen, do))
    for group in answers.lagging:
        since_ms, topic = _oldest(group)
        if since_ms and (lag_ms := int(answers.clock["wall_ms"]) - since_ms) > LAG_MS:
            seen = f"group {group['group']} lags {_ago(lag_ms)} behind in {topic}"
            do = f"look at its consumers: horolog group describe {group['group']}"
            found.append(Check("groups", State.WARNING, seen, do))
    if not found:
        more = " and more" if answers.more_groups else ""
        found.append(Check("groups", State.OK, f"{counted(len(rows), 'group')}{more}, none lags"))
    return found


def _oldest(group: dict[str, Any]) -> tuple[int, str]:
    """Return (when the oldest waiting message became visible, its topic); (0, "") if none waits."""
    waits = [
        (int(t["oldest_waiting_ms"] or 0), str(t["topic"])) for t in group["topics"] if t["waiting"]
    ]
    return min((each for each in waits if each[0]), default=(0, ""))


def _dead_letters(answers: Answers) -> Check:
    rows = [row for row in answers.dead_letters if row["waiting"]]
    if not rows:
        return Check("dead letters", State.OK, "none")
    total = sum(int(row["waiting"]) for row in rows)
    seen = f"{counted(total, 'message')} of {_names(rows)}"
    do = f"horolog dlq list {rows[0]['group']} says why; horolog dlq redrive sends them again"
    return Check("dead letters", State.WARNING, seen, do)


def _names(rows: list[dict[str, Any]]) -> str:
    """Return the count of groups, and the names of the largest: 2 groups (a 5, b 1)."""
    most = sorted(rows, key=lambda row: -int(row["waiting"]))
    named = ", ".join(f"{row['group']} {row['waiting']:,}" for row in most[:_NAMED])
    more = ", …" if len(rows) > _NAMED else ""
    return f"{counted(len(rows), 'group')} ({named}{more})"


def _ago(span_ms: int) -> str:
    for unit_ms, unit in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        if span_ms >= 2 * unit_ms:
            return counted(span_ms // unit_ms, unit)
    return counted(max(span_ms // SECOND_MS, 1), "second")
