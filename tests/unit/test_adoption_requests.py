"""Adoptions over the admin API, in front of a real engine: staging, commits, and every way to be refused."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from adopted_runs import stage

from horolog.admin.app import make_app
from horolog.limits import DAY_MS, HOUR_MS, STAGING_TTL_MS
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.server.loop import Engine
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.testing.adopted_runs import write_adopted


class Api:
    """Requests to one engine."""

    def __init__(self, engine: Engine, client: httpx.AsyncClient, data_dir: Path) -> None:
        self.engine = engine
        self.data_dir = data_dir
        self._client = client

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        if body is None:
            sent = {}
        response = await self._client.request(method, path, **sent)
        answer = response.json()
        return response.status_code, answer.get("result", answer.get("error"))

    async def post(self, path: str, **body: Any) -> Any:
        status, answer = await self.ask("POST", f"/v1/adoptions/{path}", body)
        assert status == 200, answer
        return answer

    async def begin(self, version: int = 1) -> dict[str, Any]:
        begun = await self.post("begin", app="load", version=version, topic="t")
        return dict(begun)

    async def pending(self) -> int:
        _, answer = await self.ask("GET", "/v1/pending")
        return int(answer["total"])

    def files(self, part: str) -> list[str]:
        return sorted(path.name for path in (self.data_dir / "shard-00" / part).iterdir())


Use = Callable[[Api], Awaitable[None]]


def serve(data_dir: Path, use: Use, *, inline_bytes: int | None = None) -> None:
    """Run `use` against a broker on that directory, which has topic t."""

    async def run() -> None:
        engine = await open_engine(data_dir, clock="simulated", segment_bytes=1 << 20)
        assert engine.adoptions is not None
        if inline_bytes is not None:
            engine.adoptions.inline_bytes = inline_bytes
        transport = httpx.ASGITransport(make_app(engine, broker_name="broker-a"))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
                api = Api(engine, client, data_dir)
                for name, kind in (("t", "delay"), ("n", "normal")):
                    await api.ask("POST", "/v1/topics", {"name": name, "type": kind, "queues": 2})
                await use(api)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def messages(begun: dict[str, Any], first: int = 0, delays: tuple[int, ...] = (1, 2, HOUR_MS)):
    return [
        encode(
            topic="t",
            body=b"x" * 50,
            message_id=f"m{first + i}",
            type=MessageType.DELAY,
            due_ms=begun["now_ms"] + delay,
        )
        for i, delay in enumerate(delays)
    ]


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_staged_in_the_directory_and_sent_in_pieces(tmp_path: Path, inline_bytes: int) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin()
        assert {**begun, "token": "", "staging": "", "log_id": ""} == {
            "already": False, "topic": "t", "topic_number": 1, "queues": 2, "log_id": "",
            "shard": 0, "staging": "", "token": "", "now_ms": api.engine.clock.wall_ms(),
            "max_due_ms": api.engine.clock.wall_ms() + 3_653 * DAY_MS, "born_host": "127.0.0.1:0",
        }  # fmt: skip
        assert begun["staging"] == str(data_dir / "shard-00" / "staging" / begun["token"])
        files = [stage(begun, "a", messages(begun))]
        elsewhere = {**begun, "staging": str(tmp_path)}
        files.append(stage(elsewhere, "b", messages(begun, 3)))
        content = (tmp_path / "b.run").read_bytes()
        place = f"/v1/adoptions/{begun['token']}/files/b.run"
        for at in (0, 100, 100, 0):
            piece = content[:100] if at == 0 else content[100:]
            status, answer = await api.ask("PUT", f"{place}?offset={at}", piece)
            assert (status, answer["bytes"]) == (
                200,
                100 if at == 0 and not first else len(content),
            )
            first.append(at)
        commit = {"app": "load", "version": 1, "topic": "t", "token": begun["token"]}
        done = await api.post("commit", **commit, files=files)
        assert (done["already"], done["rows"]) == (False, 6)
        assert done["files"] == len(api.files("runs")) == (0 if inline_bytes else 2)
        assert api.files("staging") == []
        again = await api.post("commit", **commit, files=files)
        assert again == {"already": True, "rows": 0, "files": 0, "position": -1}
        assert await api.begin() == {**begun, "already": True, "token": "", "staging": ""}
        assert await api.ask("GET", "/v1/adoptions?app=load") == (
            200,
            {"app": "load", "version": 1, "fingerprint": ""},
        )
        aborted = {"app": "load", "version": 1, "token": begun["token"]}
        assert await api.post("abort", **aborted) == {"committed": True}
        assert await api.pending() == 6
        await api.engine.advance(10)
        assert await api.pending() == 2

    first: list[int] = []
    data_dir = tmp_path / "data"
    serve(data_dir, use, inline_bytes=inline_bytes)

    async def later(api: Api) -> None:
        assert await api.pending() == 2
        assert (await api.begin())["already"]

    serve(data_dir, later)


def test_a_restart_between_staging_and_commit(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    async def before(api: Api) -> None:
        kept.update(await api.begin())
        kept["files"] = [stage(kept, "a", messages(kept, delays=(HOUR_MS, DAY_MS, 2 * DAY_MS)))]

    async def after(api: Api) -> None:
        done = await api.post(
            "commit", app="load", version=1, topic="t", token=kept["token"], files=kept["files"]
        )
        assert done["rows"] == await api.pending() == 3

    serve(tmp_path / "data", before)
    serve(tmp_path / "data", after, inline_bytes=0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_load_that_still_writes_is_not_swept(tmp_path: Path, restarted: bool) -> None:
    """A load may run for days, and is left only once nothing is written for a day."""
    kept: dict[str, Any] = {}

    async def before(api: Api) -> None:
        kept.update(await api.begin(), files=[])
        kept["files"].append(stage(kept, "a", messages(kept)))
        await api.engine.advance(2 * DAY_MS)
        if not restarted:
            await after(api)

    async def after(api: Api) -> None:
        await api.begin(2)
        assert kept["token"] in api.files("staging")
        kept["files"].append(stage(kept, "b", messages(kept, 3)))
        commit = {"app": "load", "version": 1, "topic": "t", "token": kept["token"]}
        assert (await api.post("commit", **commit, files=kept["files"]))["rows"] == 6

    serve(tmp_path, before)
    if restarted:
        serve(tmp_path, after)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_load_that_no_longer_writes_is_swept(tmp_path: Path, restarted: bool) -> None:
    kept: dict[str, Any] = {}

    async def before(api: Api) -> None:
        kept.update(await api.begin())
        stage(kept, "a", messages(kept))
        left_s = time.time() - STAGING_TTL_MS / 1000 - 1
        for path in (*api.files(f"staging/{kept['token']}"), "."):
            os.utime(f"{kept['staging']}/{path}", (left_s, left_s))
        await api.engine.advance(STAGING_TTL_MS - 1)
        await api.begin(2)
        assert kept["token"] in api.files("staging")
        await api.engine.advance(1)
        if not restarted:
            await api.begin(2)
            await after(api)

    async def after(api: Api) -> None:
        assert kept["token"] not in api.files("staging")

    serve(tmp_path, before)
    if restarted:
        serve(tmp_path, after)


def test_abort_removes_what_was_staged(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin()
        files = [stage(begun, "a", messages(begun))]
        aborted = {"app": "load", "version": 1, "token": begun["token"]}
        for _ in range(2):
            assert await api.post("abort", **aborted) == {"committed": False}
            assert api.files("staging") == api.files("runs") == []
        commit = {"app": "load", "version": 1, "topic": "t", "token": begun["token"]}
        status, error = await api.ask("POST", "/v1/adoptions/commit", {**commit, "files": files})
        assert (status, error["code"], error["field"]) == (404, "not_found", "token")
        assert await api.pending() == 0

    serve(tmp_path / "data", use)


def test_a_transaction_without_files(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin(7)
        commit = {"app": "load", "version": 7, "topic": "t", "token": begun["token"]}
        done = await api.post("commit", **commit, files=[])
        assert (done["rows"], done["files"]) == (0, 0)
        assert (await api.begin(3))["already"]

    serve(tmp_path / "data", use)


@pytest.mark.parametrize("app", ["promote::1", "promote:²:1"])
def test_an_app_that_only_looks_like_a_promotion_loads_like_any_other(
    tmp_path: Path, app: str
) -> None:
    """The client chooses the name; a number in it that could not be parsed ended the broker at the commit."""

    async def use(api: Api) -> None:
        begun = await api.post("begin", app=app, version=1, topic="t")
        files = [stage(begun, "a", messages(begun, delays=(HOUR_MS, 2 * HOUR_MS)))]
        done = await api.post(
            "commit", app=app, version=1, topic="t", token=begun["token"], files=files
        )
        assert done["rows"] == 2

    serve(tmp_path / "data", use)

    async def later(api: Api) -> None:
        assert await api.pending() == 2

    serve(tmp_path / "data", later)


_BEGIN = {"app": "load", "version": 1, "topic": "t"}


@pytest.mark.parametrize(
    ("change", "status", "code", "field"),
    [
        ({"app": ""}, 400, "bad_request", "app"),
        ({"app": "  "}, 400, "bad_request", "app"),
        ({"app": "ä" * 101}, 400, "bad_request", "app"),
        ({"version": -1}, 400, "bad_request", "version"),
        ({"version": "1"}, 400, "bad_request", "version"),
        ({"topic": "nope"}, 404, "topic_not_found", "topic"),
        ({"topic": "n"}, 409, "type_conflict", "topic"),
        ({"more": 1}, 400, "bad_request", "more"),
    ],
)
def test_begin_is_refused(tmp_path: Path, change, status, code, field) -> None:
    async def use(api: Api) -> None:
        got, error = await api.ask("POST", "/v1/adoptions/begin", {**_BEGIN, **change})
        assert (got, error["code"], error["field"]) == (status, code, field)
        assert api.files("staging") == []

    serve(tmp_path / "data", use)


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("0123456789abcdef/files/a.run", 404, "token"),
        ("TOKEN/files/a.txt", 400, "name"),
        ("TOKEN/files/..%2Fa.run", 404, "path"),
        ("TOKEN/files/" + "a" * 120 + ".run", 400, "name"),
        ("TOKEN/files/a.run?offset=9", 400, "offset"),
        ("TOKEN/files/a.run?offset=-1", 400, "offset"),
        ("TOKEN/files/a.run?at=1", 400, "at"),
    ],
)
def test_a_piece_is_refused(tmp_path: Path, path: str, status: int, field: str) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin()
        got, error = await api.ask(
            "PUT", "/v1/adoptions/" + path.replace("TOKEN", begun["token"]), b"x"
        )
        assert (got, error["field"]) == (status, field)

    serve(tmp_path / "data", use)


FAULTS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str]] = {
    "not staged": (lambda files: files[0].update(name="other.run"), "files.0.name"),
    "no name": (lambda files: files[0].update(name="../a.run"), "files.0.name"),
    "twice": (lambda files: files[1].update(files[0]), "files.1.name"),
    "bytes": (lambda files: files[1].update(bytes=files[1]["bytes"] + 1), "files.1.bytes"),
    "rows": (lambda files: files[1].update(rows=4), "files.1.rows"),
    "no rows": (lambda files: files[1].update(rows=0), "files.1.rows"),
    "first": (lambda files: files[0].update(first_ms=5), "files.0.first_ms"),
    "last": (lambda files: files[0].update(last_ms=5), "files.0.last_ms"),
    "crc": (lambda files: files[0].update(crc32=7), "files.0.crc32"),
}


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_manifest_changes_nothing(tmp_path: Path, fault: str, inline_bytes: int) -> None:
    change, field = FAULTS[fault]

    async def use(api: Api) -> None:
        begun = await api.begin()
        files = [stage(begun, name, messages(begun, i)) for i, name in enumerate("ab")]
        commit = {"app": "load", "version": 1, "topic": "t", "token": begun["token"]}
        wrong = [dict(file) for file in files]
        change(wrong)
        status, error = await api.ask("POST", "/v1/adoptions/commit", {**commit, "files": wrong})
        assert (status, error["code"], error["field"]) == (400, "bad_request", field), error
        for other in ({"app": "x"}, {"version": 2}, {"topic": "n"}):
            body = {**commit, "files": files, **other}
            status, error = await api.ask("POST", "/v1/adoptions/commit", body)
            assert status in (400, 409)
            assert error["field"] in other
        assert await api.pending() == 0
        assert api.files("runs") == []
        done = await api.post("commit", **commit, files=files)
        assert done["rows"] == await api.pending() == 6

    serve(tmp_path / "data", use, inline_bytes=inline_bytes)


MADE: dict[str, dict[str, Any]] = {
    "another log": {"log_id": 77},
    "another topic": {"topic": 2},
    "not for adoption": {"adopted": False},
    "queue that is not there": {"queues": 9},
    "other due time in the index": {"changed": {"due_ms": 1 << 40}},
    "other size in the index": {"changed": {"key": 5}},
    "wrong CRCs": {"changed": {"crc": 5}},
}


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
@pytest.mark.parametrize("fault", MADE)
def test_a_file_that_could_not_be_handed_over_is_refused(
    tmp_path: Path, fault: str, inline_bytes: int
) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin()
        sent = {"log_id": int(begun["log_id"], 16), "topic": 1, "queues": 2, **MADE[fault]}
        claim = write_adopted(Disk(Path(begun["staging"])), "", "a", messages(begun), **sent)
        body = {
            "app": "load", "version": 1, "topic": "t", "token": begun["token"],
            "files": [claim._asdict()],
        }  # fmt: skip
        status, error = await api.ask("POST", "/v1/adoptions/commit", body)
        assert (status, error["field"]) == (400, "files.0"), error
        assert await api.pending() == 0
        assert api.files("runs") == []

    serve(tmp_path / "data", use, inline_bytes=inline_bytes)


def test_what_is_due_too_late_is_refused(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin()
        late = messages(begun, delays=(1, 3_653 * DAY_MS + 1))
        files = [stage(begun, "a", late)]
        body = {"app": "load", "version": 1, "topic": "t", "token": begun["token"], "files": files}
        status, error = await api.ask("POST", "/v1/adoptions/commit", body)
        sent = (status, error["code"], error["field"])
        assert sent == (400, "illegal_delivery_time", "files.0.last_ms")

    serve(tmp_path / "data", use)


def test_commits_at_the_same_time_are_one(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        bodies = []
        for _ in range(2):
            begun = await api.begin()
            files = [stage(begun, "a", messages(begun))]
            sent = {"app": "load", "version": 1, "topic": "t", "token": begun["token"]}
            bodies += [{**sent, "files": files}] * 2
        done = await asyncio.gather(*(api.post("commit", **body) for body in bodies))
        assert sorted(each["already"] for each in done) == [False, True, True, True]
        assert await api.pending() == 3
        assert len(api.files("runs")) == 1
        assert api.files("staging") == []

    serve(tmp_path / "data", use, inline_bytes=0)


def test_the_token_of_another_transaction_is_refused(tmp_path: Path) -> None:
    async def use(api: Api) -> None:
        begun = await api.begin(2)
        files = [stage(begun, "a", messages(begun, delays=(HOUR_MS,)))]
        commit = {"app": "load", "version": 2, "topic": "t", "token": begun["token"]}
        first = await api.begin(1)
        await api.post("commit", app="load", version=1, topic="t", token=first["token"], files=[])
        wrong = {"app": "load", "version": 1, "token": begun["token"]}
        for path, body in (
            ("abort", wrong),
            ("abort", {**wrong, "app": "x"}),
            ("commit", {**wrong, "topic": "t", "files": files}),
        ):
            status, error = await api.ask("POST", f"/v1/adoptions/{path}", body)
            assert (status, error["field"]) == (400, "token")
        assert (await api.post("commit", **commit, files=files))["rows"] == 1
        assert await api.pending() == 1

    serve(tmp_path / "data", use, inline_bytes=0)


def test_tasks_of_a_stream_join_one_transaction(tmp_path: Path) -> None:
    """With `join` the token follows from what the transaction is, also after a restart and once it is committed."""
    tokens = []

    async def begin(api: Api) -> None:
        begun = await api.post("begin", app="load", version=1, topic="t", join=True)
        again = await api.post("begin", app="load", version=1, topic="t", join=True)
        assert again["token"] == begun["token"]
        assert again["staging"] == begun["staging"]
        other = await api.post("begin", app="load", version=2, topic="t", join=True)
        alone = await api.begin()
        assert len({begun["token"], other["token"], alone["token"]}) == 3
        tokens.append(begun["token"])

    async def commit(api: Api) -> None:
        begun = await api.post("begin", app="load", version=1, topic="t", join=True)
        assert begun["token"] == tokens[0]
        done = await api.post(
            "commit", app="load", version=1, topic="t", token=begun["token"], files=[]
        )
        assert not done["already"]
        late = await api.post("begin", app="load", version=1, topic="t", join=True)
        assert (late["already"], late["token"]) == (True, "")

    serve(tmp_path, begin)
    serve(tmp_path, commit)
