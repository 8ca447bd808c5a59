"""Adoptions over HTTP: begin a transaction, upload its files if need be, commit, abort.

Files are uploaded where writer and broker share no directory.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from horolog import limits
from horolog.admin.adoption_shapes import (
    REFUSED,
    AbortedAdoption,
    AdoptedVersion,
    BegunAdoption,
    CommittedAdoption,
    StagedBytes,
)
from horolog.admin.answers import answer, engine_of
from horolog.admin.endpoints import endpoint, integer_parameter, text_parameter
from horolog.admin.request_shapes import AbortBody, AdoptionBody, CommitBody
from horolog.admin.requests import query, query_int, read_body, read_bytes
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.adoption_commands import (
    AdoptionState,
    BeginAdoption,
    DescribeAdoption,
    FileRow,
)
from horolog.protocol.rocketmq.names import check_topic
from horolog.server.running import AdoptionMaker


@endpoint(
    "GET", "/v1/adoptions", query=(text_parameter("app", required=True),), answer=AdoptedVersion
)
async def describe_adoption(request: Request) -> Response:
    """GET /v1/adoptions?app=A: show the highest committed version of an app; −1 if there is none."""
    app = query(request, "app").get("app", "")
    if not app:
        raise refused("app", "which app is meant?")
    state: AdoptionState = await engine_of(request).submit(DescribeAdoption(app))
    return answer({"app": app, **state._asdict()})


@endpoint("POST", "/v1/adoptions/begin", body=AdoptionBody, answer=BegunAdoption, codes=REFUSED)
async def begin_adoption(request: Request) -> Response:
    """POST /v1/adoptions/begin: begin an adoption, and return where to stage its files.

    The result also has the values that the files must contain.
    """
    wanted = await read_body(request, AdoptionBody)
    topic = check_topic(wanted.topic)
    begun = await _adoptions(request).begin(
        wanted.app, wanted.version, topic, join=wanted.join, fingerprint=wanted.fingerprint
    )
    return answer(begun)


@endpoint(
    "PUT",
    "/v1/adoptions/{token}/files/{name}",
    query=(integer_parameter("offset", 0, (1 << 63) - 1, 0),),
    content="application/octet-stream",
    answer=StagedBytes,
    codes=REFUSED,
)
async def put_file(request: Request) -> Response:
    """PUT /v1/adoptions/{token}/files/{name}?offset=N: write a piece of a staged file."""
    offset = query_int(query(request, "offset"), "offset", 0, 0, (1 << 63) - 1)
    content = await read_bytes(request, limits.ADOPTION_PIECE_MAX)
    token, name = request.path_params["token"], request.path_params["name"]
    return answer({"bytes": await _adoptions(request).put(token, name, offset, bytes(content))})


@endpoint("POST", "/v1/adoptions/commit", body=CommitBody, answer=CommittedAdoption, codes=REFUSED)
async def commit_adoption(request: Request) -> Response:
    """POST /v1/adoptions/commit: schedule all rows of the transaction, once."""
    wanted = await read_body(request, CommitBody)
    claims = [FileRow(**file.model_dump()) for file in wanted.files]
    topic = check_topic(wanted.topic)
    meant = BeginAdoption(wanted.app, wanted.version, topic, wanted.fingerprint)
    done = await _adoptions(request).commit(meant, wanted.token, claims)
    return answer(
        {
            "already": done.already,
            "rows": done.rows,
            "files": done.files,
            "position": done.position,
        }
    )


@endpoint("POST", "/v1/adoptions/abort", body=AbortBody, answer=AbortedAdoption, codes=REFUSED)
async def abort_adoption(request: Request) -> Response:
    """POST /v1/adoptions/abort: remove the staged files, unless the transaction is committed."""
    wanted = await read_body(request, AbortBody)
    done = await _adoptions(request).abort(wanted.app, wanted.version, wanted.token)
    return answer({"committed": done})


def _adoptions(request: Request) -> AdoptionMaker:
    adoptions = engine_of(request).adoptions
    if adoptions is None:
        raise HorologError(ErrorCode.NOT_IMPLEMENTED, "adoptions: there is no data directory")
    return adoptions
