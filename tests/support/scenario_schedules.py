"""Scenario words about recurring schedules, through the admin API."""

from __future__ import annotations

from typing import Any

from horolog.admin.client import path_of
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess
from horolog.units import parse_duration_ms


class ScheduleWords:
    """The part of a `Scenario` that has these words."""

    _broker: BrokerProcess
    _scheduled: set[str]  # bodies of recurring schedules

    def _name(self, word: str) -> str:
        raise NotImplementedError

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _schedule(self, words: list[str]) -> list[str]:
        """Create a recurring schedule from its name, topic, body, and options."""
        name, options = self._name(words[0]), self._options(words[3:])
        wanted: dict[str, Any] = {"name": name, "topic": self._name(words[1]), "body": words[2]}
        for option, value in options.items():
            if option in ("every", "jitter"):
                wanted[f"{option}_ms"] = parse_duration_ms(value, field=option)
            else:
                wanted[option] = int(value) if option == "times" else value
        try:
            view = self._broker.admin.post(path_of("schedules"), wanted)
        except HorologError as refusal:
            return [f"refused: {refusal}"]
        self._scheduled.add(words[2])
        return [f"{view['state']}, {len(view['next'])} firings to come"]

    def _pause(self, words: list[str]) -> list[str]:
        path = path_of("schedules", self._name(words[0]), "pause")
        return [self._broker.admin.post(path, {})["state"]]

    def _resume(self, words: list[str]) -> list[str]:
        path = path_of("schedules", self._name(words[0]), "resume")
        return [self._broker.admin.post(path, {})["state"]]

    def _remove(self, words: list[str]) -> list[str]:
        self._broker.admin.delete(path_of("schedules", self._name(words[0])))
        return []
