"""Backups over HTTP: start one, and ask for its progress."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import answer, engine_of
from horolog.admin.endpoints import endpoint
from horolog.admin.request_shapes import BackupBody
from horolog.admin.requests import query, read_body
from horolog.admin.shapes import Backup
from horolog.admin.views import backup_view
from horolog.errors import ErrorCode, HorologError
from horolog.server.running import BackupMaker


@endpoint(
    "POST",
    "/v1/backup",
    body=BackupBody,
    answer=Backup,
    status=202,
    codes=(ErrorCode.NOT_IMPLEMENTED,),
)
async def begin_backup(request: Request) -> Response:
    """POST /v1/backup: start a backup and return 202; GET /v1/backup shows its progress."""
    wanted = await read_body(request, BackupBody)
    return answer(
        backup_view(await _backups(request).begin(wanted.directory, full=wanted.full)), 202
    )


@endpoint("GET", "/v1/backup", answer=Backup, codes=(ErrorCode.NOT_IMPLEMENTED,))
async def describe_backup(request: Request) -> Response:
    """GET /v1/backup: show the newest backup, running or ended."""
    query(request)
    return answer(backup_view(_backups(request).view()))


def _backups(request: Request) -> BackupMaker:
    backups = engine_of(request).backups
    if backups is None:
        raise HorologError(ErrorCode.NOT_IMPLEMENTED, "backup: this broker has no data directory")
    return backups
