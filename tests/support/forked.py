"""`horolog` as a fork of a process that has imported it: a tenth of the time of a start.

The tests start hundreds of processes. `Forked` is a `subprocess.Popen` whose child is such a fork:
it has the arguments, environment, directory, files, session and exit code of a real start, and is a
child of the tests' own process. Tests of what only a start of the installed script shows (its
memory and cost, its limits, the ring of kills) have `pytest.mark.usefixtures("installed")`; with
HOROLOG_INSTALLED in the environment all tests start the script.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from horolog.testing.broker import installed_command

PROGRAM = Path(__file__).with_name("fork_server.py")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans of ours become our children
FILES = ("p2cread", "c2pwrite", "errwrite")
NOTHING_ELSE = {
    "preexec_fn": None,
    "pass_fds": (),
    "shell": False,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}


class ForkServer:
    """The process that has imported everything; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads do not outlive a fork
            )
        assert self._socket.recv(16) == b"ready", "the fork server did not start"
        atexit.register(self.close)

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait()

    def fork(self, wanted: dict[str, Any], files: list[int]) -> int:
        """Return the id of a new child of this process."""
        with self._lock:
            self._adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [json.dumps(wanted).encode()], files)
                answer = self._socket.recv(16)
            finally:
                self._adopt_orphans(False)
        assert answer, "the fork server has ended"
        return int(answer)

    def _adopt_orphans(self, yes: bool) -> None:
        if self._libc.prctl(SUBREAPER, int(yes), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


_servers: dict[int, ForkServer] = {}
_start_lock = threading.Lock()


def server() -> ForkServer:
    """Return the fork server of this process."""
    with _start_lock:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = ForkServer()
        return _servers[os.getpid()]


def program_of(command: list[str]) -> tuple[str, list[str]] | None:
    """Return the script ("" for the installed one) and its `sys.argv`.

    None if the command is neither the installed script nor a file beside this one.
    """
    own = installed_command()
    if command[: len(own)] == own:
        return "", [own[0], *command[len(own) :]]
    if command[0] == sys.executable and Path(command[1]).parent == PROGRAM.parent:
        return command[1], command[1:]
    return None


class Forked(subprocess.Popen[str]):
    """A process of `horolog`; any other command is started as usual."""

    def _execute_child(self, args: Any, executable: Any, *given: Any) -> None:
        # The names are those of CPython 3.11 to 3.14.
        names = subprocess.Popen._execute_child.__code__.co_varnames[3 : 3 + len(given)]
        named = dict(zip(names, given, strict=True))
        program = program_of(args) if isinstance(args, list) and executable is None else None
        if program is None or any(named[name] != none for name, none in NOTHING_ELSE.items()):
            super()._execute_child(args, executable, *given)
            return
        env = os.environ if named["env"] is None else named["env"]
        wanted = {
            "script": program[0],
            "argv": program[1],
            "env": dict(env),
            "cwd": os.fspath(named["cwd"] or os.getcwd()),
            "session": bool(named["start_new_session"]),
        }
        files = [named[name] if named[name] != -1 else i for i, name in enumerate(FILES)]
        self.pid = server().fork(wanted, files)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[name] for name in ends))


def run(
    command: list[str],
    *,
    input: str | None = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture_output else {}
    if input is not None:
        pipes["stdin"] = subprocess.PIPE
    with Forked(command, **pipes, **more) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        ended.check_returncode()
    return ended
