"""What the driver refuses before it asks the broker to commit, and how long it asks a silent one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from horolog.admin import client
from horolog.admin.status import Silence, UnreachableError
from horolog.errors import HorologError
from horolog.limits import ADOPTION_FILES_MAX
from horolog.spark.sink_columns import Target
from horolog.spark.topic_answers import TopicAnswers
from horolog.spark.transaction import StagedRun, Transaction, check_topic_exists, commit


def test_too_many_files_are_refused_with_what_to_do() -> None:
    """The broker's refusal of 4 097 files was that of a list, after all of the work."""
    target = Target("t", 1, 1, 1, 1, 1, (b"\x7f\0\0\1", 8090))
    begun = Transaction("http://127.0.0.1:1", "a", 0, "token", "", False, target, 1)
    files = [StagedRun(f"{i}.run", 1, 1, 1, 1, 1) for i in range(ADOPTION_FILES_MAX + 1)]
    with pytest.raises(HorologError) as refused:
        commit(begun, "t", files)
    assert refused.value.message == (
        "files: the tasks have staged 4,097 files, at least one for each partition with rows; a transaction has at "
        "most 4,096: write fewer partitions (coalesce), or use bulk_load"
    )


@pytest.fixture(params=[b"", b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", b"HTTP/1.1 200"])
def stalled(request) -> Iterator[str]:
    """URL of a server that takes connections, and hangs; or begins to answer, and then trickles."""
    ended = threading.Event()

    def serve(taken: socket.socket) -> None:
        with taken:
            taken.sendall(request.param)
            while request.param and not ended.wait(0.02):
                try:
                    taken.sendall(b" ")
                except OSError:
                    return
            ended.wait()

    def accept() -> None:
        while not ended.is_set():
            taken, _ = server.accept()
            threads.append(threading.Thread(target=serve, args=(taken,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        socket.create_connection(server.getsockname()).close()
        for thread in threads:
            thread.join()


def test_a_broker_that_hangs_or_trickles_is_asked_until_the_timeout(stalled, monkeypatch) -> None:
    monkeypatch.setattr(client, "_SHORTEST_S", 0.1)
    for ask in (
        lambda: check_topic_exists(stalled, "t", 200),
        TopicAnswers(stalled, "t", 200).commit_position,
        lambda: TopicAnswers(stalled, "t", 200).store_ms(0, 0),
    ):
        begun = time.monotonic()
        with pytest.raises((UnreachableError, HorologError), match="no broker answers") as error:
            ask()
        assert time.monotonic() - begun < 5
        if isinstance(error.value, UnreachableError):
            assert error.value.silence is Silence.HANGS
