"""The consumer groups of a shard: names, numbers, settings.  A number is never given twice."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from horolog.protocol.queue_commands import GroupSettings

_DEFAULTS = GroupSettings()
_NAMES = tuple(each.name for each in fields(GroupSettings))


class GroupTable:
    """Groups by name and by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.last = 0  # the highest number that was ever given
        self._settings: dict[int, GroupSettings] = {}  # of those that have other than the defaults

    def put(self, number: int, name: str, settings: GroupSettings | None = None) -> None:
        """A group exists (made now, or read from the log), with other settings if they are given."""
        self.numbers[name] = number
        self.names[number] = name
        self.last = max(self.last, number)
        if settings is not None:
            self._settings[number] = settings

    def put_row(self, row: dict[str, Any]) -> None:
        """The same as a record or a checkpoint says it."""
        self.put(row["number"], row["name"], settings_of_row(row.get("settings")))

    def drop(self, number: int) -> None:
        """A group is deleted."""
        del self.numbers[self.names.pop(number)]
        self._settings.pop(number, None)

    def settings_of(self, number: int) -> GroupSettings:
        """As they were given, or the defaults."""
        return self._settings.get(number, _DEFAULTS)

    def rows(self) -> list[dict[str, Any]]:
        """What a checkpoint's registry says of them."""
        found: list[dict[str, Any]] = []
        for name, number in self.numbers.items():
            row: dict[str, Any] = {"number": number, "name": name}
            if number in self._settings:
                row["settings"] = settings_row(self._settings[number])
            found.append(row)
        return found

    def check_invariants(self) -> None:
        """Names and numbers tell the same groups, and no number is above the last one."""
        assert {name: number for number, name in self.names.items()} == self.numbers
        assert all(0 < number <= self.last for number in self.names), self.last
        assert self._settings.keys() <= self.names.keys(), "settings of a group that is gone"


def settings_row(settings: GroupSettings) -> dict[str, Any]:
    """As JSON keeps them."""
    return asdict(settings)


def settings_of_row(row: dict[str, Any] | None) -> GroupSettings | None:
    """What `settings_row` gave; what a newer horolog has added is not looked at."""
    if row is None:
        return None
    return GroupSettings(**{name: row[name] for name in _NAMES if name in row})
