"""A process that imports `horolog` and forks itself for every start of it; see `forked.py`.

    fork_server.py FD

FD is a socket: a packet of JSON with three open files asks for a process, and the new process
answers with its id. The server forks twice, so that the process is orphaned, and the process that
asked becomes its parent.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import time
from typing import Any, NoReturn

# These modules start threads when they are imported, or take long and are seldom needed.
LEFT_OUT = (
    "horolog.spark", "horolog.pipeline", "horolog.testing", "horolog.lake.jobs", "horolog.lake.table",
    "horolog.__main__",
)  # fmt: skip
ALSO = ("uvloop", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.on")
FILES = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def import_all(package: Any) -> None:
    """Import a package and all modules in it."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name not in LEFT_OUT:
            module = importlib.import_module(found.name)
            if found.ispkg:
                import_all(module)


def become(wanted: dict[str, Any], files: list[int]) -> None:
    """Turn into the process that was asked for, up to its first instruction."""
    if wanted["session"]:
        os.setsid()
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    # The given files may themselves be among 0 to 2 only as our own.
    for (number, name, mode), file in zip(FILES, files, strict=True):
        os.dup2(file, number)
        os.close(file)
        raw = open(number, mode + "b", buffering=-1, closefd=False)  # noqa: SIM115 - lives on
        is_error = name == "stderr"
        text = io.TextIOWrapper(
            raw,
            encoding="utf-8",
            errors="backslashreplace" if is_error else "strict",
            line_buffering=is_error or raw.isatty(),
            write_through=mode == "w" and bool(wanted["env"].get("PYTHONUNBUFFERED")),
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    sys.argv = wanted["argv"]


def serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return the request in a child, and None at the end."""
    while True:
        message, files, _, _ = socket.recv_fds(asked, 1 << 20, len(FILES))
        if not message:
            return None
        middle = os.fork()
        if middle:
            os.waitpid(middle, 0)
            for file in files:
                os.close(file)
            continue
        middle = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == middle:
            os.sched_yield()
        asked.send(b"%d" % os.getpid())
        asked.close()
        wanted = json.loads(message)
        become(wanted, files)
        return dict(wanted)


def leave(code: Any) -> NoReturn:
    """End as Python does, but without clearing every module, which would copy all shared memory."""
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python does
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    """Import everything, and serve."""
    import horolog

    import_all(horolog)
    for name in ALSO:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        asked.send(b"ready")
        wanted = serve(asked)
    if wanted is None:
        return
    from horolog.cli.main import main as start

    try:
        if wanted["script"]:
            runpy.run_path(wanted["script"], run_name="__main__")
        else:
            start()
    except SystemExit as ended:
        leave(ended.code)


if __name__ == "__main__":
    main()
