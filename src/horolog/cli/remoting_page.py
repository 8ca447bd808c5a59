"""docs/reference/remoting.md: every request code that the remoting doors answer, and what is said of it."""

from __future__ import annotations

from horolog.protocol.remoting.codes import Code
from horolog.server.remoting.front import RemotingFront
from horolog.server.remoting.node import Node

_IN_BATCHES = {  # handlers take them together, so that none of these has one of its own
    Code.SEND_MESSAGE: "Store a message.",
    Code.SEND_MESSAGE_V2: "The same, with short names of fields.",
    Code.SEND_BATCH_MESSAGE: "Store messages of one topic.",
}
_REMOTING = """# Remoting: request codes

{made}

Both ports of the remoting protocol, the name server's and the broker's, answer all of these codes.
Any other is answered with `REQUEST_CODE_NOT_SUPPORTED` (3) and a sentence. [mqadmin.md](../guides/mqadmin.md)
lists the commands of RocketMQ's own tools that use them.

| code | name | answer |
|---|---|---|
"""


def remoting_page(made: str) -> str:
    """The whole page; `made` says by whom."""
    front = RemotingFront(Node(engine=None))  # type: ignore[arg-type]  # nothing is asked of it here
    rows = [f"| {int(code)} | `{code.name}` | {_said_of(front, code)} |\n" for code in front.codes]
    return _REMOTING.format(made=made) + "".join(rows)


def _said_of(front: RemotingFront, code: Code) -> str:
    """What its handler says, in one paragraph."""
    if code in _IN_BATCHES:
        return _IN_BATCHES[code]
    text = (front.handler(code).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(line.strip() for line in text.splitlines())
