"""Checks of a data directory whose broker is stopped; nothing is changed."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from horolog.cli.checkup.check import Check, State
from horolog.cli.checkup.running import disk_check
from horolog.cli.progress import Report, size_text
from horolog.errors import ErrorCode, HorologError
from horolog.limits import CONNECTIONS_MAX
from horolog.storage.disk import Disk
from horolog.storage.meta import META, parse_meta
from horolog.units import counted
from horolog.verify.directory import verify_directory
from horolog.verify.offline import lock_directory

_SHOWN = 5


def check_stopped(directory: Path, report: Report) -> list[Check]:
    """Check directory, owner, disk, limits of this shell, and `horolog verify --quick`."""
    try:
        lock = lock_directory(directory)
    except HorologError as error:
        return [Check("directory", State.WRONG, error.message, _ADVICE.get(error.code, _LOOK))]
    try:
        found = [Check("directory", State.OK, str(directory)), *_owner(directory)]
        if lock is None:
            seen = "is read-only for this user: a broker of this user cannot start"
            found.append(Check("writable", State.WARNING, seen, _ADVICE["writable"]))
        found += [_clock(directory), disk_check(shutil.disk_usage(directory).free), _files()]
        return found + _verified(directory, report)
    except HorologError as error:
        do = _ADVICE["owner"] if "belongs to user" in error.message else _LOOK
        return [*found, Check("verify", State.WRONG, error.message, do)]
    finally:
        if lock is not None:
            lock.release()


_LOOK = "`horolog verify DIR` shows everything; docs/guides/operate.md#damage says what to do"
_ADVICE = {
    "owner": "chown -R USER DIR, as root; then start the broker, and run this, as that user",
    "writable": "look at the owner, the permissions and the mount of DIR; or run this as the broker's user",
    ErrorCode.NOT_FOUND: "give --data-dir the data directory, which has the file `meta`",
    ErrorCode.DIRECTORY_IN_USE: "its broker is running: leave out --data-dir, and check that broker",
}


def _owner(directory: Path) -> list[Check]:
    owner = directory.stat().st_uid
    if owner == os.geteuid() or os.geteuid() == 0:
        return []
    seen = f"belongs to user {owner}, and this is user {os.geteuid()}"
    return [Check("owner", State.WARNING, seen, "start the broker as the user who owns it")]


def _clock(directory: Path) -> Check:
    meta = parse_meta((directory / META).read_bytes())
    if meta.clock == "simulated":
        return Check("clock", State.NOTE, "simulated: it starts only with --clock simulated")
    return Check("clock", State.OK, meta.clock)


def _files() -> Check:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= CONNECTIONS_MAX:
        return Check("files", State.OK, f"{most:,} may be open")
    do = (
        f"raise it (ulimit -n, LimitNOFILE=) for the {CONNECTIONS_MAX:,} connections of the "
        "default setting"
    )
    return Check("files", State.NOTE, f"{most:,} may be open in this shell", do)


def _verified(directory: Path, report: Report) -> list[Check]:
    verdict = verify_directory(Disk(directory, read_only=True), quick=True, report=report)
    findings = verdict.findings
    if verdict.clean:
        seen = f"{size_text(verdict.bytes)}, {counted(verdict.frames, 'frame')} of the log"
        notes = [Check("verify", State.NOTE, note) for note in findings.notes[:_SHOWN]]
        return [Check("verify", State.OK, seen), *notes]
    kept = [f"{each.file} at {each.position}: {each.what}" for each in findings.kept[:_SHOWN]]
    rest = findings.count - len(kept)
    if rest:
        kept.append(f"and {counted(rest, 'other')}")
    return [Check("verify", State.WRONG, text, _LOOK) for text in kept]
