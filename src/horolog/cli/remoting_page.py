"""docs/reference/remoting.md: every request code that the remoting doors answer."""

from __future__ import annotations

from horolog.protocol.remoting.codes import Code
from horolog.server.remoting.front import RemotingFront
from horolog.server.remoting.node import Node

_IN_BATCHES = {  # codes that handlers take in batches, so that none has a handler of its own
    Code.SEND_MESSAGE: "Store a message.",
    Code.SEND_MESSAGE_V2: "Store a message; the request has short names of fields.",
    Code.SEND_BATCH_MESSAGE: "Store messages of one topic.",
}
_REMOTING = """# Remoting: request codes

{made}

Both ports of the remoting protocol, the name server's and the broker's, answer all of these codes.
Any other code is answered with `REQUEST_CODE_NOT_SUPPORTED` (3) and a sentence. [mqadmin.md](../guides/mqadmin.md)
lists the commands of RocketMQ's own tools that use these codes.

| code | name | answer |
|---|---|---|
"""


def remoting_page(made: str) -> str:
    """Return the whole page; `made` is the note that says how the page is made."""
    front = RemotingFront(Node(engine=None))  # type: ignore[arg-type]  # nothing is asked of it here
    rows = [f"| {int(code)} | `{code.name}` | {_meaning(front, code)} |\n" for code in front.codes]
    return _REMOTING.format(made=made) + "".join(rows)


def _meaning(front: RemotingFront, code: Code) -> str:
    """Return the first paragraph of the handler's docstring, on one line."""
    if code in _IN_BATCHES:
        return _IN_BATCHES[code]
    text = (front.handler(code).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(line.strip() for line in text.splitlines())
