"""A query from topic to topic whose driver is killed again and again: every message is copied once."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import stream_job
from admin_proxy import AdminProxy
from received import received
from stepped import Stepped
from topic_fill import fill

pytestmark = [pytest.mark.slow, pytest.mark.process]

A_BATCH = 5  # messages
A_TURN = 2 * A_BATCH  # so that every life finds a batch that is not committed
BEGIN, COMMIT = "/v1/adoptions/begin", "/v1/adoptions/commit"
POINTS = [
    ("/v1/topics/in/queues/", "before"),  # the source reads
    (BEGIN, "before"),  # the sink has staged nothing
    (BEGIN, "after"),
    (COMMIT, "before"),  # everything is staged
    (COMMIT, "after"),  # committed, but the query's checkpoint does not know
]


class Life(Stepped):
    """A driver with a proxy of its own, as tasks that outlive it must not count as its successor's."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self._point = ("", "")
        self.killed = False
        self._proxy = AdminProxy(url, self._hook)
        given = (self._proxy.url, str(checkpoint), str(A_BATCH))
        super().__init__(Path(stream_job.__file__), *given)

    def __enter__(self) -> Life:
        self._proxy.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._proxy.__exit__(*error)

    def die_at(self, point: tuple[str, str]) -> None:
        """Go on; be killed at the first request to a path, before or after the broker has served it."""
        self._point = point
        self.go()
        assert self.next_line() == ""
        assert self.killed, self.stderr()

    def _hook(self, path, forward):
        wanted, when = self._point
        if self.killed or not wanted or not path.startswith(wanted):
            return forward()
        self.killed = True
        if when == "after":
            forward()
        self.kill()
        return None


def newest(folder: Path) -> int:
    """The last batch that a checkpoint tells of."""
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.parametrize("kills", [7, pytest.param(20, marks=pytest.mark.full)])
def test_drivers_are_killed(broker, tmp_path, kills) -> None:
    """At each of the points once or more; after the sixth kill the broker starts again as well."""
    broker.create_topic("in", "mixed", 2)
    broker.create_topic("out")
    checkpoint, sent = tmp_path / "checkpoint", []
    with ExitStack() as lives:
        life = lives.enter_context(Life(broker.admin_url, checkpoint))
        for turn in range(kills):
            following = lives.enter_context(Life(broker.admin_url, checkpoint))  # gets ready
            sent += fill(broker, "in", range(len(sent), len(sent) + A_TURN))
            assert life.next_line() == "begun", life.stderr()
            life.die_at(POINTS[turn % len(POINTS)])
            life = following
            if turn % 7 == 5:
                broker.kill()
                broker.start()
        assert life.next_line() == "begun", life.stderr()
        life.go()
        life.until("copied")
        assert life.finish() == 0
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    last = newest(checkpoint / "commits")
    assert last == newest(checkpoint / "offsets") >= len(sent) // A_BATCH - 1
    assert broker.admin.get("/v1/adoptions", {"app": query})["version"] == last
    copied_once(broker, sent)


def copied_once(broker, sent) -> None:
    """A day later, with the ids of their originals; and nothing else."""
    assert broker.pending("out") == len(sent)
    broker.advance("23h")
    assert received(broker, "out") == []
    broker.advance("2h")
    found = received(broker, "out")
    expected = sorted((each["message_id"], f"message {i}") for i, each in enumerate(sent))
    assert sorted((each["properties"]["from"], each["body"]) for each in found) == expected
    assert len({each["message_id"] for each in found}) == len(sent)
