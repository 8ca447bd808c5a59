"""Scenario words about groups and topics as operators see them, through the admin API."""

from __future__ import annotations

from typing import Any

from horolog.admin.client import path_of
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess


class GroupWords:
    """The part of a `Scenario` that has these words."""

    _broker: BrokerProcess

    def _name(self, word: str) -> str:
        raise NotImplementedError

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _reset(self, words: list[str]) -> list[str]:
        """Reset a group to another place in a topic."""
        options = self._options(words[1:])
        group = self._name(options.get("group", "g"))
        wanted: dict[str, Any] = {"topic": self._name(words[0]), "to": options["to"]}
        if options.get("dry_run"):
            wanted["dry_run"] = True
        done = self._broker.admin.post(path_of("groups", group, "reset"), wanted)
        return [f"{done['again']} again, {done['skipped']} skipped"]

    def _delete(self, words: list[str]) -> list[str]:
        """Delete a topic, with or without its pending messages."""
        pending = self._options(words[1:]).get("pending", "refuse")
        path = path_of("topics", self._name(words[0]))
        try:
            done = self._broker.admin.delete(f"{path}?pending={pending}")
        except HorologError as refusal:
            return [f"refused: {refusal}"]
        return [f"deleted, {done['recalled']} recalled"]
