"""The name server's table of values: namespaces of keys, which tools write and clients read.

The table is not a part of the broker's state.  It is the file `namesrv-kv.json` of the data
directory, always written whole, to a new file that replaces the old one.  A file that holds no such
table does not keep the broker from its messages: it is set aside, and the table is empty.  The
namespace ORDER_TOPIC_CONFIG has the queues of topics whose order holds over all queues; routes include them.
"""

from __future__ import annotations

import logging

import orjson

from horolog.errors import refused
from horolog.limits import KV_BYTES_MAX
from horolog.storage.api import Storage, read_file, replace_file

FILE = "namesrv-kv.json"
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
_ASIDE = f"{FILE}.damaged"
_log = logging.getLogger("horolog.doors")


class KvTable:
    """Values by namespace and key."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._table: dict[str, dict[str, str]] = _read(storage)

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def all_of(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace."""
        return dict(self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value, durably."""
        changed = self._copy()
        changed.setdefault(namespace, {})[key] = value
        self._write(changed)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, durably; no change if there is none."""
        changed = self._copy()
        if changed.get(namespace, {}).pop(key, None) is None:
            return
        if not changed[namespace]:
            del changed[namespace]
        self._write(changed)

    def _copy(self) -> dict[str, dict[str, str]]:
        return {namespace: dict(values) for namespace, values in self._table.items()}

    def _write(self, changed: dict[str, dict[str, str]]) -> None:
        content = orjson.dumps(changed, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
        if len(content) > KV_BYTES_MAX:
            raise refused(
                "value",
                f"the table would have {len(content)} bytes; at most {KV_BYTES_MAX} are allowed",
                f"{KV_BYTES_MAX} bytes",
            )
        replace_file(self._storage, "", FILE, content)
        self._table = changed


def _read(storage: Storage) -> dict[str, dict[str, str]]:
    try:
        found = orjson.loads(read_file(storage, FILE))
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
        for values in found.values()
    ):
        storage.remove(_ASIDE)
        storage.rename(FILE, _ASIDE)
        storage.sync_dir("")
        _log.error(
            "%s is no table of namespaces, keys and values: it is kept as %s, and the table is empty"
            " now; stop the broker and repair it, or write the values again (updateKvConfig)",
            FILE,
            _ASIDE,
        )
        return {}
    return found
