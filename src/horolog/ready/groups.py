"""The consumer groups of a shard: names, ids, settings.  An id is never used twice."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields
from typing import Any

from horolog.limits import REDELIVERY_MIN_MS
from horolog.protocol.queue_commands import GroupSettings
from horolog.protocol.rocketmq.backoff import BY_LEVELS, FIELD, policy_of, stored_backoff

_DEFAULTS = GroupSettings()
_NAMES = tuple(each.name for each in fields(GroupSettings))


class GroupTable:
    """The consumer groups by name and by id."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.last = 0  # the highest id that was ever used
        self._settings: dict[int, GroupSettings] = {}  # of groups with other than the defaults
        self._ordered: list[str] | None = None  # sorted names; None after a change

    def put(self, group_id: int, name: str, settings: GroupSettings | None = None) -> None:
        """Add a group (new, or read from the log), or change its settings if any are given."""
        if name not in self.ids:
            self._ordered = None
        self.ids[name] = group_id
        self.names[group_id] = name
        self.last = max(self.last, group_id)
        if settings is not None:
            self._settings[group_id] = settings

    def put_row(self, row: dict[str, Any]) -> None:
        """Add or change a group from its row in a record or a checkpoint."""
        self.put(row["number"], row["name"], settings_of_row(row.get("settings")))

    def drop(self, group_id: int) -> None:
        """Remove a deleted group."""
        del self.ids[self.names.pop(group_id)]
        self._ordered = None
        self._settings.pop(group_id, None)

    def after(self, name: str, count: int) -> list[str]:
        """Return up to `count` names after `name`; they are sorted once for all pages of a list."""
        if self._ordered is None:
            self._ordered = sorted(self.ids)
        at = bisect_right(self._ordered, name)
        return self._ordered[at : at + count]

    def settings_of(self, group_id: int) -> GroupSettings:
        """Return the settings of a group, or the defaults."""
        return self._settings.get(group_id, _DEFAULTS)

    def pause_ms(self, group_id: int, attempt: int) -> int:
        """Return how long, in ms, a message waits after `attempt` failures of its consumers."""
        backoff = self.settings_of(group_id).backoff or BY_LEVELS
        return max(backoff.after(attempt), REDELIVERY_MIN_MS)

    def rows(self) -> list[dict[str, Any]]:
        """Build the rows of all groups for the registry of a checkpoint."""
        found: list[dict[str, Any]] = []
        for name, group_id in self.ids.items():
            row: dict[str, Any] = {"number": group_id, "name": name}
            if group_id in self._settings:
                row["settings"] = settings_row(self._settings[group_id])
            found.append(row)
        return found

    def check_invariants(self) -> None:
        """Assert that names and ids name the same groups, and that no id is above `last`."""
        assert {name: group_id for group_id, name in self.names.items()} == self.ids
        assert self._ordered is None or self._ordered == sorted(self.ids)
        assert all(0 < group_id <= self.last for group_id in self.names), self.last
        assert self._settings.keys() <= self.names.keys(), "settings of a group that is gone"


def settings_row(settings: GroupSettings) -> dict[str, Any]:
    """Encode settings as a row of JSON."""
    row = {name: getattr(settings, name) for name in _NAMES if name != "backoff"}
    if settings.backoff is not None:
        row["backoff"] = policy_of(settings.backoff)
    return row


def settings_of_row(row: dict[str, Any] | None) -> GroupSettings | None:
    """Decode a row of `settings_row`; ignore fields that a newer horolog has added.

    An older horolog kept a retry policy among the attributes, without using it.
    """
    if row is None:
        return None
    known = {name: row[name] for name in _NAMES if name in row and name != "backoff"}
    attributes = dict(known.get("attributes", {}))
    policy = row.get("backoff", attributes.pop(FIELD, None))
    return GroupSettings(**{**known, "attributes": attributes}, backoff=stored_backoff(policy))
