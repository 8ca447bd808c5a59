"""Messages in a topic, sent over one connection of the admin API."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from horolog.testing.broker import BrokerProcess


def fill(broker: BrokerProcess, topic: str, numbers: range, **fields: object) -> list[dict]:
    """Send `message <number>` for each number; return the broker's answers."""
    parts = urlsplit(broker.admin_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    answers = []
    for number in numbers:
        wanted = {"topic": topic, "body": f"message {number}", **fields}
        body = json.dumps(wanted).encode()
        connection.request("POST", "/v1/messages", body, {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 201, answer
        answers.append(answer["result"])
    connection.close()
    return answers


def bodies(numbers: range) -> list[str]:
    """Return the bodies that `fill` sent."""
    return sorted(f"message {number}" for number in numbers)
