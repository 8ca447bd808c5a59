"""Scenario words about files and storage: adopted runs, backups, the disk, the lake."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import forked
from adopted_runs import stage

from horolog.admin.client import path_of
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.testing.broker import BrokerProcess, installed_command
from horolog.units import TIME_MAX_MS, parse_duration_ms


class StoreWords:
    """The part of a `Scenario` that has these words."""

    _broker: Any  # ScenarioBroker
    _suffix: str

    def _name(self, word: str) -> str:
        raise NotImplementedError

    def _at(self, word: str) -> int:
        raise NotImplementedError

    def _remember(self, topic: str, body: str, message_id: str) -> None:
        raise NotImplementedError

    @staticmethod
    def _options(words: list[str]) -> dict[str, str]:
        raise NotImplementedError

    def _adopt(self, words: list[str]) -> list[str]:
        topic, messages = self._name(words[0]), []
        for word in words[1:]:
            if word.startswith("due="):
                messages[-1][1] = self._at(word.removeprefix("due="))
            else:
                messages.append([word, 0])
        transaction = {"app": topic, "version": 0, "topic": topic}
        begun = self._broker.admin.post("/v1/adoptions/begin", transaction)
        rows = []
        for body, due_ms in sorted(messages, key=lambda each: each[1]):
            message_id = uuid.uuid4().hex.upper()
            rows.append(
                encode(
                    topic=topic,
                    body=body.encode(),
                    message_id=message_id,
                    type=MessageType.DELAY,
                    due_ms=due_ms,
                )
            )
            self._remember(topic, body, message_id)
        files = [stage(begun, "part", rows)]
        commit = {**transaction, "token": begun["token"], "files": files}
        return [f"adopted {self._broker.admin.post('/v1/adoptions/commit', commit)['rows']}"]

    def _backup(self, words: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            kept, again = Path(place) / "backup", Path(place) / "again"
            admin = ["--admin", self._broker.admin_url]
            restore = ["restore", str(kept), "--data-dir", str(again)]
            for command in (["backup", str(kept), *admin], restore):
                forked.run([*installed_command(), *command], check=True, capture_output=True)
            with BrokerProcess(again) as restored:
                found = restored.admin.get(path_of("pending"), {"topic": self._name(words[0])})
        return [f"{found['total']} pending in the backup"]

    def _disk(self, words: list[str]) -> list[str]:
        self._broker.set_disk_free(self._options(words)["free"])
        return []

    def _offload(self, words: list[str]) -> list[str]:
        from horolog.pipeline.offload import offload  # here, because this takes a second

        admin = self._broker.admin
        beyond_ms = parse_duration_ms(self._options(words)["beyond"], field="beyond")
        offload(admin, str(self._broker.lake), self._broker.now_ms() + beyond_ms)
        return [self._in_lake()]

    def _promote(self, words: list[str]) -> list[str]:
        from horolog.pipeline.promote import promote_due

        ahead_ms = parse_duration_ms(self._options(words)["ahead"], field="ahead")
        promote_due(self._broker.admin_url, ahead_ms=ahead_ms)
        return [self._in_lake()]

    def _in_lake(self) -> str:
        """Return how many messages of this run's topics are in the lake."""
        hours = self._broker.admin.get("/v1/offloads", {"to_ms": TIME_MAX_MS})["hours"]
        mine = [hour["waiting"] for hour in hours if hour["topic_name"].endswith(self._suffix)]
        return f"{sum(mine)} in the lake"
