"""Scenario words about messages that are too late, and what operators see of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horolog.admin.client import path_of
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess
from horolog.units import parse_duration_ms


class LateWords:
    """The part of a `Scenario` that has these words."""

    _broker: BrokerProcess
    _start_ms: int
    _sent: dict[str, tuple[str, Any]]  # topic and answer by body
    _reconnect: Callable[[], None]
    _expired_before: int

    def _name(self, word: str) -> str:
        raise NotImplementedError

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _late(self, words: list[str]) -> list[str]:
        """Set the late policy of a topic."""
        wanted: dict[str, Any] = {"late": words[1]}
        if len(words) > 2:
            wanted["late_after_ms"] = parse_duration_ms(words[2], field="late_after")
        try:
            self._broker.admin.patch(path_of("topics", self._name(words[0])), wanted)
        except HorologError as refusal:
            return [f"refused: {refusal}"]
        return []

    def _down(self, words: list[str]) -> list[str]:
        """Kill the broker and start it that much later, so that messages due meanwhile are late."""
        # The simulated clock continues at the time in this file
        clock = self._broker.data_dir / "clock"
        was_ms = self._broker.now_ms()
        self._broker.kill()
        clock.write_text(f"{was_ms + parse_duration_ms(words[0], field='down')}\n")
        self._broker.restart()
        self._reconnect()
        self._broker.advance(0)  # due messages are handed over
        return []

    def _find(self, words: list[str]) -> list[str]:
        """Return the state of each copy of a message, without times."""
        topic, sent = self._sent[words[0]]
        query = {"topic": topic, "id": sent.message_id}
        found = self._broker.admin.get(path_of("messages", "find"), query)["messages"]
        return [", ".join(each["state"].lower() for each in found)]

    def _problems(self, words: list[str]) -> list[str]:
        """Return failing checks, problems, and how many messages expired in this scenario."""
        assert not words
        checks = self._broker.admin.get("/healthz")["checks"]
        broker = self._broker.admin.get("/v1/broker")
        failing = [each["name"] for each in checks if not each["ok"]]
        expired = broker["expired"] - self._expired_before
        well = f"{', '.join(failing)} fail" if failing else "all checks pass"
        return [f"{well}, {len(broker['problems'])} problems, {expired} expired"]
