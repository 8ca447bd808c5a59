"""Answers of the admin port that nobody reads take a bounded memory (P11)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from horolog.admin.outgoing import BoundedAnswers
from horolog.limits import KIB
from horolog.server import unread_answers as unread_module
from horolog.server.unread_answers import UnreadAnswers


class Connection:
    """One that is owed so much."""

    def __init__(self, unread_bytes: int) -> None:
        self.unread_bytes = unread_bytes
        self.ended = False

    def cut_off(self) -> None:
        self.ended = True
        self.unread_bytes = 0


def asked(answers: UnreadAnswers, *pieces: bytes) -> tuple[int, bytes]:
    """Status and body that a server hears, of an app that answers with these pieces."""
    said: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for i, piece in enumerate(pieces):
            more = i + 1 < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(BoundedAnswers(app, answers)({}, None, send))  # type: ignore[arg-type]
    assert said[0]["type"] == "http.response.start"
    return said[0]["status"], b"".join(each["body"] for each in said[1:])


LARGE = bytes(100 * KIB)


def test_a_large_answer_is_refused_while_too_much_is_not_read() -> None:
    hoarder = Connection(0)
    answers = UnreadAnswers({hoarder}, 250 * KIB)
    for _ in range(3):
        assert asked(answers, LARGE) == (200, LARGE)
        hoarder.unread_bytes += len(LARGE)
    status, body = asked(answers, LARGE)
    assert status == 429
    assert json.loads(body)["error"]["retriable"] is True
    assert asked(answers, b"small") == (200, b"small"), "health is told all the same"
    assert asked(answers, LARGE, LARGE)[0] == 429
    hoarder.unread_bytes = 0
    assert asked(UnreadAnswers({hoarder}, 250 * KIB), b"a", LARGE) == (200, b"a" + LARGE)


def test_who_reads_nothing_is_cut_off_by_who_asks_later(monkeypatch) -> None:
    hoarder = Connection(300 * KIB)
    answers = UnreadAnswers({hoarder}, 250 * KIB)
    assert all(asked(answers, LARGE)[0] == 200 for _ in range(3)), "not counted yet"
    assert asked(answers, LARGE)[0] == 429
    assert not hoarder.ended
    monkeypatch.setattr(unread_module, "UNREAD_STUCK_MS", 0)
    assert asked(answers, LARGE)[0] == 429
    assert hoarder.ended
    monkeypatch.setattr(unread_module, "_COUNT_MS", 0)
    assert asked(answers, LARGE)[0] == 200
