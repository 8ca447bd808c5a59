"""Run a broker process from start to end: engine, doors, ready line, signals.

    open the data directory → doors of clients → admin port → ready line → … → SIGTERM or SIGINT →
    doors closed, engine stopped

The order matters.  The lock of the data directory is taken before a port is opened, so that a
second broker on the same directory is refused because of the directory, not of a port.  Only
before a new directory is made are ports and certificate tried first: a start that they make fail
leaves no half a gigabyte of empty segments behind.  Doors close before the engine stops, so that
every client whose request was accepted gets an answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy.ma  # noqa: F401 - np.unique imports it when it is first called, and that is in a turn

from horolog.access.guard import Guard
from horolog.admin.access import OWN_TOKEN
from horolog.admin.app import make_app
from horolog.admin.server import AdminServer
from horolog.config import Settings
from horolog.errors import HorologError
from horolog.places import is_irregular
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.server.memory import collect_less, give_back_large_blocks
from horolog.server.parts import Door, Parts, Reloaded
from horolog.server.ports import ADMIN_HOST, bind, check_ports
from horolog.server.running import RunningEngine
from horolog.server.supervisor import Supervisor
from horolog.server.tls import Certificate
from horolog.storage.descriptors import RESERVE
from horolog.storage.meta import META

log = logging.getLogger("horolog.server")

GRACE_S = 1.0  # seconds for calls under way; telemetry streams never end by themselves
_PORTS = ("grpc-port", "admin-port", "namesrv-port", "broker-port")  # as the ready line has them
EXIT_OK = 0
EXIT_FAILED = 1


class _Signals(NamedTuple):
    """Events of the signals that have arrived so far."""

    stop: asyncio.Event  # SIGTERM, SIGINT
    reload: asyncio.Event  # SIGHUP that arrived before there were files to reload


async def serve(settings: Settings, parts: Parts) -> int:
    """Run a broker until a signal or a failure ends it; return the exit code.

    A data directory or port that cannot be opened raises a HorologError whose field is the flag
    that the user set; nothing stays open.
    """
    supervisor = Supervisor.of(os.environ)
    try:
        return await _serve(settings, parts, supervisor)
    except HorologError as error:
        supervisor.stopping(error.message)
        raise


async def _serve(settings: Settings, parts: Parts, supervisor: Supervisor) -> int:
    signals = _Signals(asyncio.Event(), asyncio.Event())
    _take_signals(signals)
    _allow_many_files()
    give_back_large_blocks()
    supervisor.starting(f"opening {settings.data_dir}")
    guard = Guard(settings.access) if settings.access is not None else None
    log.info(
        "starting data_dir=%s clock=%s flush=%s", settings.data_dir, settings.clock, settings.flush
    )
    _check_before_making(settings)
    broker_socket = None
    if settings.remoting and not settings.broker_port:
        broker_socket = bind(settings.host, 0, "--broker-port")
        port = broker_socket.getsockname()[1]
        settings = settings.model_copy(update={"broker_port": port})
    try:
        engine = await parts.open_engine(settings)
        try:
            doors = parts.make_doors(engine, settings, broker_socket, guard)
            _log_access(settings, guard)
            code = await _serve_doors(settings, parts, engine, doors, guard, supervisor, signals)
        finally:
            await engine.stop()
            log.info("stopped")
        # The last checkpoint may have failed as well.
        return EXIT_FAILED if engine.failed.done() else code
    finally:
        if broker_socket is not None:
            broker_socket.close()


def _check_before_making(settings: Settings) -> None:
    """Raise CONFIG for ports or a certificate that are no good, unless a directory is there."""
    if not os.path.exists(settings.data_dir / META):
        check_ports(settings)
        files = [path for path in (settings.tls_cert, settings.tls_key) if path is not None]
        if not any(is_irregular(file) and not os.path.isdir(file) for file in files):
            # A pipe can be read only once.
            Certificate(settings.tls_cert, settings.tls_key, settings.host)


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit.

    Connections, hours, queues and key runs need file descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve_doors(
    settings: Settings,
    parts: Parts,
    engine: RunningEngine,
    doors: list[Door],
    guard: Guard | None,
    supervisor: Supervisor,
    signals: _Signals,
) -> int:
    exposition = parts.make_exposition(engine, settings)
    app = make_app(
        engine,
        broker_name=settings.broker_name,
        hosts=settings.admin_host_names,
        guard=guard,
        doors=doors,
        exposition=exposition,
    )
    admin = AdminServer(app, settings.admin_port)
    ports: dict[str, int] = {}
    async with AsyncExitStack() as ends:
        ends.callback(RESERVE.give_up)
        for door in doors:
            ports |= await door.open()
            ends.push_async_callback(door.stop, GRACE_S)
        files: list[Reloaded] = [*doors, *([guard] if guard is not None else ())]
        _call_at(signal.SIGHUP, _reload, files, supervisor)
        ports["admin-port"] = await admin.start()
        ends.push_async_callback(admin.stop)
        if exposition is not None:
            exposition.figures.watch([*doors, admin])
        if engine.offloads is not None:
            ends.push_async_callback(engine.offloads.close)
        RESERVE.keep(settings.connections)
        collect_less()
        view = await _announce(settings, parts, engine, ports)
        if view is not None:
            supervisor.ready(engine, view)
        if signals.reload.is_set():
            _reload(files, supervisor)
        if engine.offloads is not None and parts.promote is not None:
            own_url = f"http://:{OWN_TOKEN}@{ADMIN_HOST}:{ports['admin-port']}"
            engine.offloads.promote_late(parts.promote, own_url)
        code = await _until_the_end(engine, signals.stop, settings.data_dir)
        supervisor.stopping("" if code == EXIT_OK else f"failed: {engine.failed.exception()}")
        return code


def _reload(files: Sequence[Reloaded], supervisor: Supervisor) -> None:
    """Reload certificates and the access file; a refused one does not affect the others."""
    supervisor.reloading()
    refused = []
    for each in files:
        try:
            each.reload()
        except HorologError as error:
            log.error("%s; what is in use stays", error)
            refused.append(error.message)
    supervisor.reloaded(refused)


def _log_access(settings: Settings, guard: Guard | None) -> None:
    """Log one line that says who may connect."""
    if guard is not None:
        log.info("access control is on identities=%d", len(guard))
    elif settings.is_local:
        log.info("access control is off: everybody on this machine may do everything (--access)")
    else:
        log.warning(
            "access control is off and --host is %s: everybody who reaches it may do everything "
            "(--access)",
            settings.host,
        )


async def _announce(
    settings: Settings, parts: Parts, engine: RunningEngine, ports: dict[str, int]
) -> BrokerView | None:
    """Print the ready line to stdout, flushed: the process that started the broker waits for it.

    Return None if the engine has failed.
    """
    try:
        view: BrokerView = await engine.submit(DescribeBroker())
    except HorologError:
        if engine.failed.done():
            return None  # `_until_the_end` reports the failure
        raise
    facts: dict[str, object] = {name: ports[name] for name in _PORTS if name in ports}
    facts |= {"data-dir": settings.data_dir, "epoch": view.epoch, "pid": os.getpid()}
    parts.print_line(
        " ".join(["horolog ready", *(f"{name}={fact}" for name, fact in facts.items())])
    )
    log.info("ready " + " ".join(f"{name}=%s" for name in facts), *facts.values())
    return view


async def _until_the_end(engine: RunningEngine, stop: asyncio.Event, data_dir: Path) -> int:
    """Wait for a signal (return 0) or for the engine to fail (return 1)."""
    stopped = asyncio.ensure_future(stop.wait())
    ends: set[asyncio.Future[Any]] = {stopped, engine.failed}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    if not engine.failed.done():
        log.info("stopping")
        return EXIT_OK
    error = engine.failed.exception()
    log.critical(
        "ended, the broker cannot go on: %s; a new start recovers from %s", error, data_dir
    )
    return EXIT_FAILED


def _take_signals(signals: _Signals) -> None:
    """Handle SIGTERM, SIGINT and SIGHUP, so that none ends the process, even in recovery."""
    for number in (signal.SIGTERM, signal.SIGINT):
        _call_at(number, signals.stop.set)
    signal.signal(signal.SIGHUP, lambda *_: signals.reload.set())  # at once: nobody waits for it


def _call_at(number: signal.Signals, call: Callable[..., object], *arguments: object) -> None:
    """Call in the event loop whenever a signal arrives, and no longer what was called before.

    Not by a handler of the loop: when that is removed, at the latest by the end of the loop, there
    is a moment in which a further signal ends the process.
    """
    loop = asyncio.get_running_loop()
    signal.signal(number, lambda *_: loop.call_soon_threadsafe(call, *arguments))


def ignore_signals() -> None:
    """Ignore SIGTERM, SIGINT and SIGHUP from now on; the process ends soon with its exit code.

    Otherwise a second one would end it, and its exit code would not say whether it had failed.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
