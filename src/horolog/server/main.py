"""A broker process from its start to its end: engine, doors, ready line, signals.

    open the data directory → gRPC door → admin port → ready line → … → SIGTERM or SIGINT → doors
    closed, engine stopped

The order matters: the directory's lock is taken before a port is opened, so that a second broker on
the same directory is told about the directory; doors close before the engine stops, so that whoever
was promised an answer gets it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from horolog.admin.app import make_app
from horolog.admin.engine import Engine
from horolog.admin.server import ADMIN_HOST, AdminServer, port_in_use
from horolog.config import Settings
from horolog.errors import HorologError
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.storage.descriptors import RESERVE, room_for

log = logging.getLogger("horolog.server")

GRPC_GRACE_S = 1.0  # for calls under way; telemetry streams never end by themselves
_COLLECT_AFTER = 20_000  # objects made and not freed, before the youngest are looked at
EXIT_OK = 0
EXIT_FAILED = 1


class Door(Protocol):
    """A front end with a port."""

    async def start(self) -> int:
        """Open the port; gives its real number."""
        ...

    def reload(self) -> None:
        """Read the files of the certificate again; CONFIG if they cannot be used."""
        ...

    async def stop(self, grace_s: float, /) -> None:
        """Close the port; calls under way have `grace_s` seconds."""
        ...


class RunningEngine(Engine, Protocol):
    """What the process needs of the engine beyond what the admin API needs."""

    async def stop(self) -> None:
        """Write, sync and close everything."""
        ...


def _print_line(line: str) -> None:
    print(line, flush=True)


@dataclass(frozen=True)
class Parts:
    """How the parts are made; tests put fakes here."""

    open_engine: Callable[[Settings], Awaitable[RunningEngine]]
    make_grpc_front: Callable[[RunningEngine, Settings], Door]
    say: Callable[[str], None] = _print_line


def real_parts() -> Parts:
    """Engine and gRPC door; imported here, because they are large."""
    from horolog.broker.shard import Settings as CoreSettings
    from horolog.delay.far import FarSettings
    from horolog.server.auto_create import AutoCreate
    from horolog.server.door import Intake
    from horolog.server.grpc_front import GrpcFront
    from horolog.server.open_broker import open_engine
    from horolog.server.tls import Certificate

    async def open_real_engine(settings: Settings) -> RunningEngine:
        core = CoreSettings(
            broker_name=settings.broker_name,
            store_host=_store_host(settings),
            max_delay_ms=settings.max_delay_ms,
            dedup_ms=settings.dedup_ms,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            far=FarSettings(buffer_bytes=settings.far_buffer_bytes),
        )
        return await open_engine(
            settings.data_dir, clock=settings.clock, flush=settings.flush, settings=core
        )

    def make_front(engine: Any, settings: Settings) -> Door:
        if settings.auto_create_topics:
            engine = AutoCreate(engine)
        certificate = Certificate(settings.tls_cert, settings.tls_key, settings.host)
        return GrpcFront(
            engine,
            settings.host,
            settings.grpc_port,
            settings.broker_name,
            certificate=certificate,
            intake=Intake(room_for(settings.connections)),
        )

    return Parts(open_real_engine, make_front)


def _store_host(settings: Settings) -> bytes:
    """The advertised IPv4 address and port that messages name as their store.

    A host name stays 127.0.0.1.
    """
    try:
        address = socket.inet_aton(settings.host)
    except OSError:
        address = b"\x7f\0\0\1"
    return address + settings.grpc_port.to_bytes(4, "big")


async def serve(settings: Settings, parts: Parts | None = None) -> int:
    """Run a broker until a signal or a failure ends it; gives the exit code.

    A data directory or port that cannot be had is a HorologError whose field is the flag; nothing
    stays open.
    """
    stop = asyncio.Event()
    _stop_on_signals(stop)
    _allow_many_files()
    parts = parts or real_parts()
    log.info(
        "starting data_dir=%s clock=%s flush=%s", settings.data_dir, settings.clock, settings.flush
    )
    engine = await parts.open_engine(settings)
    try:
        return await _serve_doors(settings, parts, engine, stop)
    finally:
        await engine.stop()
        log.info("stopped")


def _allow_many_files() -> None:
    """Take as many file descriptors as the system allows: connections, hours, queues and key runs need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _collect_less() -> None:
    """Look for cycles of garbage less often, and never in what a start has made.

    Every request makes hundreds of objects that reference counting frees; the collector would walk them for nothing,
    at a quarter of what a send costs.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


async def _serve_doors(
    settings: Settings, parts: Parts, engine: RunningEngine, stop: asyncio.Event
) -> int:
    front = parts.make_grpc_front(engine, settings)
    app = make_app(engine, broker_name=settings.broker_name, hosts=settings.admin_host_names)
    admin = AdminServer(app, settings.admin_port)
    grpc_port = await _start_grpc(front, settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, front)
    try:
        admin_port = await admin.start()
        try:
            RESERVE.keep(settings.connections)
            _collect_less()
            await _announce(settings, parts, engine, grpc_port, admin_port)
            if engine.offloads is not None:
                engine.offloads.promote_late(f"http://{ADMIN_HOST}:{admin_port}")
            return await _until_the_end(engine, stop, settings.data_dir)
        finally:
            if engine.offloads is not None:
                await engine.offloads.close()
            await admin.stop()
    finally:
        await front.stop(GRPC_GRACE_S)
        RESERVE.give_up()


async def _start_grpc(front: Door, settings: Settings) -> int:
    try:
        return await front.start()
    except OSError as error:
        raise port_in_use("--grpc-port", settings.grpc_port, str(error)) from None


def _reload(front: Door) -> None:
    try:
        front.reload()
    except HorologError as error:
        log.error("%s; the certificate in use stays", error)


async def _announce(
    settings: Settings, parts: Parts, engine: RunningEngine, grpc_port: int, admin_port: int
) -> None:
    """The ready line: one line on stdout, flushed; whoever started us waits for it."""
    try:
        view: BrokerView = await engine.submit(DescribeBroker())
    except HorologError:
        if engine.failed.done():
            return  # told by `_until_the_end`
        raise
    line = (
        f"horolog ready grpc-port={grpc_port} admin-port={admin_port}"
        f" data-dir={settings.data_dir} epoch={view.epoch} pid={os.getpid()}"
    )
    parts.say(line)
    log.info("%s", line.removeprefix("horolog "))


async def _until_the_end(engine: RunningEngine, stop: asyncio.Event, data_dir: Path) -> int:
    """Wait for a signal (0) or the engine's failure (1)."""
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


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
