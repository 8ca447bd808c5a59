"""What official clients do against the broker: behaviours, clients, and missing interfaces.

`conformance.py` runs every pair that is not excused here; docs/reference/clients.md is made from
it:

    PYTHONPATH=tests/support python -m conformance_table docs/reference/clients.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

BEHAVIOURS = {
    "normal": "A message arrives once and whole: body, tag, keys, properties, first attempt",
    "delayed": "A delayed message arrives at its millisecond, and not one before",
    "fifo": "Messages of a message group arrive in the order in which they were sent",
    "transactions": "A committed message arrives, one that was rolled back does not",
    "checks": "The broker asks about a transaction that its producer did not end, and ends it as the producer says",
    "push": "Push consumers get each message once; when one leaves, another of its group goes on",
    "simple": "Messages that a simple consumer received stay invisible for the time that it asked for",
    "pull": "A pull consumer reads queues from their first message on, and commits its position",
    "ack": "An acknowledged message does not come again",
    "nack": "A message on which a consumer failed comes again, with the number of the attempt",
    "dead-letters": "After its group's last attempt a message is a dead letter",
    "fifo-failure": "A message that fails holds up its message group, and no other",
    "tags": "A tag filter delivers only messages with these tags, also among tags with the same hash",
    "several-tags": "A message with several tags reaches each consumer that asked for one of them",
    "sql": "An SQL92 filter delivers the messages whose properties match",
    "recall": "A recalled message does not arrive; a recall of one that has arrived says so",
    "tls": "The connection is encrypted when the client asks for it",
    "credentials": "The right secret opens the topics that it was granted; a wrong one opens none",
}
"""Name, and what is shown; a client passes one as a whole or is excused from it."""


class Client(NamedTuple):
    """An official client.

    ring      the make target that runs it
    excused   behaviours for which it has no interface, with the reason
    """

    language: str
    version: str
    protocol: str
    ring: str
    excused: Mapping[str, str]


NO_PULL = "5.x clients have no pull consumer"
NO_SIMPLE = "simple consumers came with the 5.x clients"
NO_RECALL = "this version has no recall"
COMPARES = (
    "4.x clients compare the whole tag once more, themselves, and drop a message with several"
)
WRAPPER = "the wrapper on PyPI has no interface for it"

CLIENTS = {
    "python": Client(
        "Python",
        "rocketmq-python-client 5.1.2",
        "gRPC",
        "make test",
        {"pull": NO_PULL},
    ),
    "node": Client(
        "Node.js", "rocketmq-client-nodejs 1.0.8", "gRPC", "make test-clients", {"pull": NO_PULL}
    ),
    "java-5.0.3": Client(
        "Java",
        "rocketmq-client-java 5.0.3",
        "gRPC",
        "make test-clients",
        {"pull": NO_PULL, "recall": NO_RECALL},
    ),
    "java-5.2.0": Client(
        "Java", "rocketmq-client-java 5.2.0", "gRPC", "make test-clients", {"pull": NO_PULL}
    ),
    "go": Client(
        "Go",
        "rocketmq-clients/golang/v5 5.1.4",
        "gRPC",
        "make test-clients",
        {"pull": NO_PULL},
    ),
    "rust": Client(
        "Rust",
        "rocketmq 5.0.0",
        "gRPC",
        "make test-full",
        {
            "push": "this version has producers and simple consumers",
            "pull": NO_PULL,
            "recall": NO_RECALL,
            "tls": "the option of this version asks for TLS and never sets it up, so no connection is made",
        },
    ),
    "java-4.9.8": Client(
        "Java",
        "rocketmq-client 4.9.8",
        "remoting",
        "make test-clients",
        {"simple": NO_SIMPLE, "recall": NO_RECALL, "several-tags": COMPARES},
    ),
    "java-5.5.0": Client(
        "Java",
        "rocketmq-client 5.5.0",
        "remoting",
        "make test-clients",
        {"simple": NO_SIMPLE, "several-tags": COMPARES},
    ),
    "go-4.x": Client(
        "Go",
        "rocketmq-client-go/v2 2.1.2",
        "remoting",
        "make test-clients",
        {
            "simple": NO_SIMPLE,
            "several-tags": COMPARES,
            "recall": NO_RECALL,
            "tls": "this version has no TLS",
        },
    ),
    "cpp": Client(
        "C++ (through Python)",
        "rocketmq 0.4.4",
        "remoting",
        "make test-clients",
        {
            "transactions": WRAPPER,
            "checks": WRAPPER,
            "simple": NO_SIMPLE,
            "fifo-failure": "the wrapper on PyPI loses what an orderly listener raises",
            "several-tags": COMPARES,
            "sql": WRAPPER,
            "recall": NO_RECALL,
            "tls": WRAPPER,
        },
    ),
}


def runs_of(client: str) -> list[str]:
    """Return the behaviours that a client must show."""
    return [name for name in BEHAVIOURS if name not in CLIENTS[client].excused]


def page() -> str:
    """Return the text of docs/reference/clients.md."""
    lines = [
        "# Official clients",
        "",
        "<!-- made by `PYTHONPATH=tests/support python -m conformance_table docs/reference/clients.md`; a test compares -->",
        "",
        "One suite of behaviours (`tests/support/conformance.py`) is run by the official clients, unmodified, each in its",
        "own environment. *yes*: the client shows it, in the tests. A number: the client has no interface for it.",
        "",
        "| client | package | protocol | run by |",
        "|---|---|---|---|",
    ]
    for name, client in CLIENTS.items():
        lines.append(f"| {name} | {client.version} | {client.protocol} | `{client.ring}` |")
    reasons = list(dict.fromkeys(why for each in CLIENTS.values() for why in each.excused.values()))
    lines += ["", "| | " + " | ".join(CLIENTS) + " |", "|---|" + "---|" * len(CLIENTS)]
    for name, says in BEHAVIOURS.items():
        cells = [
            str(reasons.index(each.excused[name]) + 1) if name in each.excused else "yes"
            for each in CLIENTS.values()
        ]
        lines.append(f"| **{name}**: {says} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{i}. {why}" for i, why in enumerate(reasons, 1)), ""]
    lines += [
        "An application with RocketMQ's starter for Spring Boot (`rocketmq-v5-client-spring-boot-starter` 2.3.1) has a test of",
        "its own, `tests/clients/test_spring.py`; so has Alibaba Cloud's `ons-client` 1.8.8.8, `tests/clients/test_ons.py`.",
        "[Testing](../internals/testing.md) says how the clients are driven.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
