"""Scenario files: prose, commands, and their output; each file is run over every pair of doors.

A line that begins with "> " is a command, and the lines under it that are indented by four spaces are its output.
Everything else is prose.  The vocabulary, on both doors:

    topic NAME [type=mixed] [queues=1]
    send TOPIC "BODY" [tag=T] [keys=a,b] [in=GROUP] [origin=shop] [due=+30s] [level=3] [sec=10] [ms=500] [start=+30s]
    batch TOPIC "BODY" [like send …] "BODY" …
    half TOPIC "BODY" [like send …]              a message of a transaction
    commit "BODY"                                the message becomes visible
    rollback "BODY"                              the message is dropped
    advance 30s
    receive TOPIC [group=g] [filter="A || B"]    receive and show all messages for the group; attempts=no: without attempt counts
                                                 filter="sql: price > 5": by properties
    ack TOPIC [group=g]                          acknowledge all that was shown to the group and has not failed
    fail "BODY" [group=g]                        ask for the message again in ten seconds
    bury "BODY" [group=g]                        make the message a dead letter of the group
    fail "BODY" [group=g] pause=group            ask for the message again after the group's pause
    pauses 1s,3s [group=g]                       set the pauses between attempts of the group
    orderly [group=g]                            make the group consume in order
    take TOPIC [max=2] [group=g]                 receive once, in order, and show the messages
    done "BODY" [group=g]                        acknowledge the message
    letters [group=g]                            count the dead letters of the group
    redrive [group=g] [delay=10m] [rate=10] [to=TOPIC]    re-drive the waiting dead letters
    reset TOPIC to=earliest [group=g] [dry_run=yes]       reset the group: earliest, latest, or a time
    delete TOPIC [pending=recall]                delete the topic, and its pending messages
    leave TOPIC [group=g]                        close the consumer; another one takes its place
    recall "BODY"
    reschedule "BODY" to=+2h
    handover "BODY" [due=+1h]                    hand over now; with due= only if due at that time
    window TOPIC from=+1h before=+2h [tag=T] [dry=yes] [to=+3h | by=+1h as=NAME | recall=yes]   move, hand over or recall a window
    history "BODY"                               show the history of the message
    pending TOPIC
    adopt TOPIC "BODY" due=+1h …                 adopt files of messages, as a bulk load does
    crash                                        kill -9, and start on the same data
    down 10m                                     kill -9, and start that much later
    late TOPIC drop 5m                           set the late policy: also dead-letter 5m, hand-over
    find "BODY"                                  show the state of each copy of the message
    problems                                     show checks, problems, and how many expired
    backup TOPIC                                 back up, restore, start the copy, count its pending
    disk free=0 | free=all                       set the free space of the broker's disk
    offload beyond=48h                           offload messages that are due later
    promote ahead=2h                             promote the hours that begin within that time

A due time is shown and given relative to the start of the scenario.  A line that begins with "Sent by remoting" names
the senders that can express what the file sends, "Received by remoting" the receivers; by default all can.

    python tests/support/scenario.py --rewrite tests/scenarios/*.txt     writes the output of the first pair
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from remoting_client import put_group
from scenario_groups import GroupWords
from scenario_late import LateWords
from scenario_moves import MoveWords
from scenario_schedules import ScheduleWords
from scenario_store import StoreWords

from horolog.admin.client import path_of
from horolog.testing.broker import BrokerProcess
from horolog.units import parse_duration_ms

COMMAND, OUTPUT = "> ", "    "
SQL = "sql: "  # begins a filter by properties
SEND_FIELDS = ("tag", "keys", "in", "due", "level", "sec", "ms", "start")
_FIGURE = re.compile(r"\d+")
_number = itertools.count(1)


class ScenarioBroker(BrokerProcess):
    """A broker whose free disk space a test can set (`set_disk_free`); it has a lake beside its data."""

    def __init__(self, flush: Literal["sync", "os"] = "sync") -> None:
        self._beside = tempfile.TemporaryDirectory(prefix="horolog-scenario-")
        self._disk_free = Path(self._beside.name) / "free"
        self.lake = Path(self._beside.name) / "lake"
        super().__init__(
            flush=flush,
            command=[sys.executable, str(Path(__file__).with_name("small_disk.py"))],
            environment={"SMALL_DISK": str(self._disk_free)},
        )

    def set_disk_free(self, free: str) -> None:
        """Set the free bytes, or "all" for the real free space; the broker looks once a second."""
        if free == "all" and not self._disk_free.exists():
            return
        if free == "all":
            self._disk_free.unlink()
        else:
            self._disk_free.write_text(free)
        self.advance("1s")

    def close(self) -> None:
        """End the broker, and remove the files beside its data."""
        super().close()
        self._beside.cleanup()


class Refused(Exception):
    """The broker refused; the text is its explanation."""


class Shown(NamedTuple):
    """A message as a door returned it.  `handle` is the door's own, to acknowledge the message by."""

    body: str
    message_id: str
    tag: str
    keys: list[str]
    properties: dict[str, str]
    due_ms: int
    attempt: int
    handle: Any


class Sent(NamedTuple):
    """The answer of a door to a send."""

    message_id: str
    recall_handle: str


class Half(NamedTuple):
    """The answer of a door to a half message; `handle` is the door's own, to end the transaction by."""

    message_id: str
    handle: Any


class Side(Protocol):
    """One door, as a sender and a receiver use it; every method raises `Refused` for a refusal."""

    def send(self, topic: str, messages: list[dict[str, Any]]) -> list[Sent]: ...
    def half(self, topic: str, message: dict[str, Any]) -> Half: ...
    def end(self, topic: str, half: Half, *, commit: bool) -> None: ...
    def receive(self, topic: str, group: str, filter: str) -> list[Shown]: ...
    def take(self, topic: str, group: str, most: int) -> list[Shown]: ...
    def ack(self, topic: str, group: str, shown: list[Shown]) -> None: ...
    def fail(self, topic: str, group: str, shown: Shown, delay_ms: int) -> None: ...
    def bury(self, topic: str, group: str, shown: Shown) -> None: ...
    def leave(self, topic: str, group: str) -> None: ...
    def recall(self, topic: str, handle: str) -> str: ...
    def connect(self) -> None: ...
    def close(self) -> None: ...


class Step(NamedTuple):
    """A command and its expected output; `line` counts from 1."""

    line: int
    command: str
    says: list[str]


def steps_of(text: str) -> list[Step]:
    """Return the commands of a file."""
    found: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(COMMAND):
            found.append(Step(number, line.removeprefix(COMMAND), []))
        elif line.startswith(OUTPUT):
            found[-1].says.append(line.removeprefix(OUTPUT))
    return found


def doors_of(text: str, word: str) -> list[str]:
    """Return the doors that can express what the file sends (`word` is "Sent") or receives ("Received")."""
    found = re.search(rf"^{word} by ([a-z, ]+)", text, re.MULTILINE)
    return [name.strip() for name in found[1].split(",")] if found else ["grpc", "remoting"]


class Scenario(ScheduleWords, GroupWords, MoveWords, LateWords, StoreWords):
    """A run of a file.  Topics and groups get names of their own, so that runs can share a broker."""

    def __init__(self, broker: ScenarioBroker, sender: Side, receiver: Side) -> None:
        self._broker, self._sender, self._receiver = broker, sender, receiver
        self._suffix = f"_run{next(_number)}"
        self._start_ms = broker.now_ms()
        self._expired_before = broker.admin.get("/v1/broker")["expired"]
        self._sent: dict[str, tuple[str, Sent]] = {}  # topic and answer by body
        self._halves: dict[str, tuple[str, Half]] = {}  # half messages, in the same form
        self._scheduled: set[str] = set()  # bodies of recurring schedules
        self._held: dict[tuple[str, str], dict[str, Shown]] = {}  # by topic and group, by body

    def run(self, step: Step) -> list[str]:
        """Run a command, and return its output."""
        words = shlex.split(step.command)
        try:
            said = getattr(self, f"_{words[0]}")(words[1:])
        except Refused as refusal:
            said = [f"refused: {refusal}"]
        return [self._without_names(line) for line in said]

    def _without_names(self, line: str) -> str:
        """Return a line as every run prints it: without this run's suffix and message ids."""
        for _, sent in self._sent.values():
            line = line.replace(sent.message_id, "ID")
        if line.startswith("refused: disk:"):
            line = _FIGURE.sub("N", line)  # the needed space differs in every run
        return line.replace(self._suffix, "")

    # --- words ------------------------------------------------------------------------------------

    def _name(self, word: str) -> str:
        return word + self._suffix

    def _at(self, word: str) -> int:
        return self._start_ms + (-1 if word[0] == "-" else 1) * parse_duration_ms(
            word.lstrip("+-"), field="due"
        )

    def _message(self, body: str, options: dict[str, str]) -> dict[str, Any]:
        made: dict[str, Any] = {"body": body, "properties": {}}
        for name, value in options.items():
            if name in ("due", "start"):
                made[name] = self._at(value)
            elif name in SEND_FIELDS:
                made[name] = value
            else:
                made["properties"][name] = value
        return made

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        return dict(word.split("=", 1) for word in words)

    def _show(self, shown: Shown, *, attempts: bool) -> str:
        words = [f'"{shown.body}"']
        if shown.tag:
            words.append(f"tag={shown.tag}")
        if shown.keys:
            words.append(f"keys={','.join(shown.keys)}")
        properties = dict(shown.properties)
        if "HOROLOG_FIRING_TIME" in properties:
            after_ms = int(properties["HOROLOG_FIRING_TIME"]) - self._start_ms
            properties["HOROLOG_FIRING_TIME"] = f"{after_ms / 1_000:+g}s"
        words += [f"{name}={value}" for name, value in sorted(properties.items())]
        if shown.due_ms:
            seconds = f"{(shown.due_ms - self._start_ms) / 1_000:+.3f}".rstrip("0").rstrip(".")
            words.append(f"due={seconds}s")
        if attempts and shown.attempt > 1:
            words.append(f"attempt={shown.attempt}")
        return " ".join(words)

    # --- commands ---------------------------------------------------------------------------------

    def _topic(self, words: list[str]) -> list[str]:
        options = {"type": "mixed", "queues": "1"} | self._options(words[1:])
        self._broker.create_topic(self._name(words[0]), options["type"], int(options["queues"]))
        return []

    def _send(self, words: list[str]) -> list[str]:
        return self._batch(words)

    def _half(self, words: list[str]) -> list[str]:
        topic, body = self._name(words[0]), words[1]
        half = self._sender.half(topic, self._message(body, self._options(words[2:])))
        self._halves[body] = topic, half
        self._remember(topic, body, half.message_id)
        return ["half sent"]

    def _remember(self, topic: str, body: str, message_id: str) -> None:
        self._sent[body] = topic, Sent(message_id, "")

    def _commit(self, words: list[str]) -> list[str]:
        topic, half = self._halves[words[0]]
        self._sender.end(topic, half, commit=True)
        return ["committed"]

    def _rollback(self, words: list[str]) -> list[str]:
        topic, half = self._halves[words[0]]
        self._sender.end(topic, half, commit=False)
        return ["rolled back"]

    def _batch(self, words: list[str]) -> list[str]:
        topic = self._name(words[0])
        messages: list[tuple[str, list[str]]] = []
        for word in words[1:]:
            if re.match(r"\w+=", word):
                messages[-1][1].append(word)
            else:
                messages.append((word, []))
        made = [self._message(body, self._options(options)) for body, options in messages]
        answers = self._sender.send(topic, made)
        assert len(answers) == len(made)
        self._sent |= {m["body"]: (topic, answer) for m, answer in zip(made, answers, strict=True)}
        return [f"sent {len(answers)}"] if len(answers) > 1 else ["sent"]

    def _advance(self, words: list[str]) -> list[str]:
        self._broker.advance(words[0])
        return []

    def _receive(self, words: list[str]) -> list[str]:
        topic, options = self._name(words[0]), self._options(words[1:])
        group = self._name(options.get("group", "g"))
        shown = self._receiver.receive(topic, group, options.get("filter", "*"))
        return self._taking(topic, group, shown, attempts=options.get("attempts") != "no")

    def _taking(
        self, topic: str, group: str, shown: list[Shown], *, attempts: bool = True
    ) -> list[str]:
        held = self._held.setdefault((topic, group), {})
        for message in shown:
            if message.body not in self._scheduled:
                _, sent = self._sent[message.body]
                assert message.message_id == sent.message_id, "another id than its sender was told"
            held[message.body] = message
        return [self._show(message, attempts=attempts) for message in shown] or ["nothing"]

    def _ack(self, words: list[str]) -> list[str]:
        topic = self._name(words[0])
        group = self._name(self._options(words[1:]).get("group", "g"))
        held = self._held.pop((topic, group), {})
        self._receiver.ack(topic, group, list(held.values()))
        return [f"acknowledged {len(held)}"]

    def _leave(self, words: list[str]) -> list[str]:
        topic = self._name(words[0])
        group = self._name(self._options(words[1:]).get("group", "g"))
        self._held.pop((topic, group), None)
        self._receiver.leave(topic, group)
        return []

    def _taken(self, words: list[str]) -> tuple[str, str, Shown]:
        group = self._name(self._options(words[1:]).get("group", "g"))
        topic = self._sent[words[0]][0]
        return topic, group, self._held[topic, group].pop(words[0])

    def _fail(self, words: list[str]) -> list[str]:
        of_group = self._options(words[1:]).get("pause") == "group"
        self._receiver.fail(*self._taken(words), 0 if of_group else 10_000)
        return []

    def _pauses(self, words: list[str]) -> list[str]:
        group = self._name(self._options(words[1:]).get("group", "g"))
        pauses = [parse_duration_ms(word, field="pauses") for word in words[0].split(",")]
        policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": pauses}}
        put_group(self._broker.broker_address, group, groupRetryPolicy=policy)
        return []

    def _orderly(self, words: list[str]) -> list[str]:
        group = self._name(self._options(words).get("group", "g"))
        put_group(self._broker.broker_address, group, consumeMessageOrderly=True)
        return []

    def _take(self, words: list[str]) -> list[str]:
        topic, options = self._name(words[0]), self._options(words[1:])
        group = self._name(options.get("group", "g"))
        shown = self._receiver.take(topic, group, int(options.get("max", "32")))
        return self._taking(topic, group, shown)

    def _done(self, words: list[str]) -> list[str]:
        topic, group, shown = self._taken(words)
        self._receiver.ack(topic, group, [shown])
        return []

    def _bury(self, words: list[str]) -> list[str]:
        self._receiver.bury(*self._taken(words))
        return []

    def _letters(self, words: list[str]) -> list[str]:
        group = self._name(self._options(words).get("group", "g"))
        found = self._broker.admin.get(path_of("groups", group, "dead-letters"), {"all": "true"})
        assert len(found["messages"]) == found["waiting"] + found["redriven"]
        return [f"{found['waiting']} waiting, {found['redriven']} re-driven"]

    def _redrive(self, words: list[str]) -> list[str]:
        options = self._options(words)
        path = path_of("groups", self._name(options.get("group", "g")), "dead-letters", "redrive")
        wanted: dict[str, Any] = {"rate": int(options["rate"]) if "rate" in options else None}
        if "delay" in options:
            wanted["in_ms"] = parse_duration_ms(options["delay"], field="delay")
        if "to" in options:
            wanted["to"] = self._name(options["to"])
        return [f"re-driven {self._broker.admin.post(path, wanted)['redriven']}"]

    def _recall(self, words: list[str]) -> list[str]:
        topic, sent = self._sent[words[0]]
        recalled = self._sender.recall(topic, sent.recall_handle)
        assert recalled == sent.message_id
        return ["recalled"]

    def _crash(self, words: list[str]) -> list[str]:
        self._broker.kill()
        self._broker.restart()
        self._reconnect()
        return []

    def _reconnect(self) -> None:
        for side in (self._sender, self._receiver):
            side.connect()

    def _pending(self, words: list[str]) -> list[str]:
        found = self._broker.admin.get(path_of("pending"), {"topic": self._name(words[0])})
        return [f"{found['total']} pending"]


def rewritten(text: str, said: list[list[str]]) -> str:
    """Return the file with the output of its commands."""
    lines: list[str] = []
    left = iter(said)
    for line in text.splitlines():
        if not line.startswith(OUTPUT):
            lines.append(line)
        if line.startswith(COMMAND):
            lines += [OUTPUT + found for found in next(left)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the files that are named."""
    from scenario_doors import sides

    _, word, *names = sys.argv
    assert word == "--rewrite", __doc__
    with ScenarioBroker() as broker:
        for path in map(Path, names):
            text = path.read_text()
            pair = [doors_of(text, word)[0] for word in ("Sent", "Received")]
            with sides(broker, *pair) as (out, into):
                scenario = Scenario(broker, out, into)
                path.write_text(rewritten(text, [scenario.run(step) for step in steps_of(text)]))


if __name__ == "__main__":
    from scenario import main as run  # the same module that the doors import

    run()
