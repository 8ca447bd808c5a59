"""Handlers of the name server's table of values (`kv_table`): tools write it, clients read it."""

from __future__ import annotations

import orjson

from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.request import DONE, Answer, text
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request


class KvCodes:
    """Handlers of PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.PUT_KV_CONFIG: self.put,
            Code.GET_KV_CONFIG: self.get,
            Code.DELETE_KV_CONFIG: self.delete,
            Code.GET_KVLIST_BY_NAMESPACE: self.all_of,
        }

    def put(self, request: Request) -> Answer:
        """Set a value of the name server's table."""
        frame = request.frame
        namespace, key = text(frame, "namespace"), text(frame, "key")
        self._node.kv.put(namespace, key, text(frame, "value"))
        return DONE

    def get(self, request: Request) -> Answer:
        """Return a value of the name server's table."""
        namespace, key = text(request.frame, "namespace"), text(request.frame, "key")
        value = self._node.kv.get(namespace, key)
        if value is None:
            return Answer(
                Status.QUERY_NOT_FOUND,
                remark=f"key: {key[:200]!r} of {namespace[:200]!r} has no value",
            )
        return Answer(fields={"value": value})

    def delete(self, request: Request) -> Answer:
        """Remove a value of the name server's table."""
        self._node.kv.delete(text(request.frame, "namespace"), text(request.frame, "key"))
        return DONE

    def all_of(self, request: Request) -> Answer:
        """Return all values of a namespace."""
        table = self._node.kv.all_of(text(request.frame, "namespace"))
        return Answer(body=orjson.dumps({"table": table}, option=orjson.OPT_SORT_KEYS))
