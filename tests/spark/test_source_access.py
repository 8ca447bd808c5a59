"""A topic of a broker that has an access file: who reads says who it is, and nothing says its secret."""

from __future__ import annotations

import pytest
from access_files import access_file

from horolog.admin.client import AdminClient
from horolog.errors import HorologError
from horolog.spark.message_columns import MESSAGE_SCHEMA
from horolog.spark.reading import batch_reader
from horolog.spark.topic_answers import TopicAnswers
from horolog.testing.broker import BrokerProcess

_SECRET = "operator-secret"


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A broker that knows its clients, with three messages in the topic `orders`."""
    monkeypatch.setenv("HOROLOG_ACCESS_KEY", "operator")
    monkeypatch.setenv("HOROLOG_SECRET_KEY", _SECRET)
    with BrokerProcess(arguments=["--access", str(access_file(tmp_path))]) as started:
        started.create_topic("orders", "mixed")
        for number in range(3):
            AdminClient(started.admin_url).post(
                "/v1/messages", {"topic": "orders", "body": f"message {number}"}
            )
        yield started


def offsets_read(url: str) -> list[int]:
    """Queue offsets of all that a batch reads, as its tasks do it."""
    wanted = {"broker": url, "topic": "orders", "maxRecordsPerPartition": "2"}
    reader = batch_reader(wanted, MESSAGE_SCHEMA)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [each for batch in batches for each in batch.column("queue_offset").to_pylist()]


def test_tasks_say_who_asks(guarded, monkeypatch) -> None:
    """By the environment, or by the URL; without either they are refused."""
    assert offsets_read(guarded.admin_url) == [0, 1, 2]
    for name in ("HOROLOG_ACCESS_KEY", "HOROLOG_SECRET_KEY"):
        monkeypatch.delenv(name)
    address = guarded.admin_url.removeprefix("http://")
    assert offsets_read(f"http://operator:{_SECRET}@{address}") == [0, 1, 2]
    assert offsets_read(f"http://:operator-token@{address}") == [0, 1, 2]
    with pytest.raises(HorologError, match="authorization: missing"):
        offsets_read(guarded.admin_url)


@pytest.mark.parametrize("place", ["operator:{}@h:80", "https://operator:{}@h:80", "http://a:{}@ "])
def test_a_wrong_url_is_shown_without_its_secret(place) -> None:
    with pytest.raises(HorologError, match=r"option .broker.: .* is not a URL such as") as refused:
        batch_reader({"broker": place.format(_SECRET), "topic": "orders"}, MESSAGE_SCHEMA)
    assert _SECRET not in refused.value.message


def test_a_broker_that_does_not_answer_is_reported_without_the_secret() -> None:
    place = TopicAnswers(f"http://operator:{_SECRET}@127.0.0.1:1", "orders", 1)
    for ask in (place.bounds, lambda: list(place.read(0, 0, 1))):
        with pytest.raises(
            HorologError, match=r"no broker answers at http://127\.0\.0\.1:1 "
        ) as refused:
            ask()
        assert _SECRET not in refused.value.message
