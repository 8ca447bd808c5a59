"""Scenario words about moving messages, through the admin API; neither protocol can move one."""

from __future__ import annotations

from typing import Any

from horolog.admin.client import path_of
from horolog.errors import ErrorCode, HorologError
from horolog.testing.broker import BrokerProcess
from horolog.units import parse_duration_ms


class MoveWords:
    """The part of a `Scenario` that has these words."""

    _broker: BrokerProcess
    _start_ms: int
    _sent: dict[str, tuple[str, Any]]  # topic and answer by body

    def _name(self, word: str) -> str:
        raise NotImplementedError

    def _at(self, word: str) -> int:
        raise NotImplementedError

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _reschedule(self, words: list[str]) -> list[str]:
        at_ms = self._at(self._options(words[1:])["to"])
        return self._move("/v1/reschedule", words[0], {"new_deliver_at_ms": at_ms})

    def _handover(self, words: list[str]) -> list[str]:
        expected = self._options(words[1:]).get("due")
        wanted = {"expected_deliver_at_ms": self._at(expected)} if expected else {}
        return self._move("/v1/hand-over", words[0], wanted)

    def _move(self, path: str, body: str, wanted: dict[str, Any]) -> list[str]:
        topic, sent = self._sent[body]
        try:
            moved = self._broker.admin.post(path, {"handle": sent.recall_handle, **wanted})
        except HorologError as refusal:
            if refusal.code is ErrorCode.DUE_TIME_CHANGED:
                after_ms = int(refusal.limit) - self._start_ms
                return [f"refused: it is due +{after_ms // 1_000}s"]
            return [f"refused: {refusal}"]
        self._sent[body] = topic, type(sent)(moved["message_id"], moved["recall_handle"])
        return [moved["status"].lower().replace("_", " ")]

    def _window(self, words: list[str]) -> list[str]:
        """Shift, move, hand over or recall all messages of a topic that are due in a window."""
        options = self._options(words[1:])
        wanted: dict[str, Any] = {
            "topic": self._name(words[0]),
            "from_ms": self._at(options["from"]),
            "to_ms": self._at(options["before"]),
            "dry_run": "dry" in options,
        }
        if "tag" in options:
            wanted["tag"] = options["tag"]
        path = "/v1/reschedule/window"
        if "by" in options:
            sign = -1 if options["by"].startswith("-") else 1
            by_ms = parse_duration_ms(options["by"].lstrip("+-"), field="by")
            wanted |= {"shift_ms": sign * by_ms, "operation_id": options["as"]}
        elif "to" in options:
            wanted["new_deliver_at_ms"] = self._at(options["to"])
        else:
            path = "/v1/recall/window" if "recall" in options else "/v1/hand-over/window"
        try:
            done = self._broker.admin.post(path, wanted)
        except HorologError as refusal:
            return [f"refused: {refusal}"]
        if "recall" in options:
            return [f"cancelled {done['cancelled']} of {done['matched']}"]
        return [f"moved {done['moved']} of {done['matched']}"]

    def _history(self, words: list[str]) -> list[str]:
        """Return the history of a message with its groups, without times."""
        topic, sent = self._sent[words[0]]
        shown = self._broker.admin.get(path_of("messages", sent.message_id), {"topic": topic})
        steps = []
        for row in shown["history"]:
            group = f" by {row['detail']['group']}" if "group" in row["detail"] else ""
            asked = " by request" if row["detail"].get("by_request") else ""
            steps.append(f"{row['event']}{asked}{group}")
        return [", ".join(steps)]
