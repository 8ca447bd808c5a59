"""Build the parts of a broker process: the engine, and the doors of clients."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from horolog.access.guard import Guard
from horolog.config import BROKER_PORT, VIP_PORT, Settings
from horolog.server.connected import KnowsClients, Neighbour
from horolog.server.running import GrpcEngine, Promote, RunningEngine
from horolog.server.store_host import store_host
from horolog.storage.descriptors import give_up_output, room_for

if TYPE_CHECKING:
    from horolog.metrics.exposition import Exposition
    from horolog.server.remoting.node import Node

log = logging.getLogger("horolog.server")


class Reloaded(Protocol):
    """A part that reads its files again when the process gets SIGHUP."""

    def reload(self) -> None:
        """Read the files again.

        Raise CONFIG if they cannot be used; the contents read before stay in use.
        """
        ...


class Door(KnowsClients, Protocol):
    """A front end with one port or several."""

    async def open(self) -> dict[str, int]:
        """Open the ports; return the real ports by the names of their settings: `grpc-port`."""
        ...

    def reload(self) -> None:
        """Read the files of the certificate again; raise CONFIG if they cannot be used."""
        ...

    async def stop(self, grace_s: float, /) -> None:
        """Close the ports; requests under way have `grace_s` seconds to end."""
        ...


def print_ready(line: str) -> None:
    """Print the line to stdout; a closed pipe or a full disk does not end the broker."""
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("stdout takes no ready line (%s); the log has it", error.strerror)
        give_up_output()


@dataclass(frozen=True)
class Parts:
    """The functions that make the parts of a broker; tests pass fakes.

    make_doors       the third argument is a bound socket of the broker's port if that is 0, since
                     messages name the port from the first on; the fourth checks permissions
    print_line       prints the ready line
    make_exposition  makes the metrics; None: there are none
    promote          fetches messages of the tier that are due soon; None: nothing fetches them
    """

    open_engine: Callable[[Settings], Awaitable[RunningEngine]]
    make_doors: Callable[[RunningEngine, Settings, socket.socket | None, Guard | None], list[Door]]
    print_line: Callable[[str], None] = print_ready
    make_exposition: Callable[[RunningEngine, Settings], Exposition | None] = lambda *_: None
    promote: Promote | None = None


def real_parts(promote: Promote | None) -> Parts:
    """Return the functions that make the engine and the doors of a real broker.

    The modules of the parts are imported when the parts are made, because they are large.
    """
    return Parts(_open_engine, _make_doors, make_exposition=_make_exposition, promote=promote)


async def _open_engine(settings: Settings) -> RunningEngine:
    from horolog.broker.settings import ShardSettings, TransactionSettings
    from horolog.delay.far.compaction import FarSettings
    from horolog.server.open_broker import open_engine
    from horolog.storage.crash_note import CrashNote

    core = ShardSettings(
        broker_name=settings.broker_name,
        store_host=store_host(settings),
        max_delay_ms=settings.max_delay_ms,
        dedup_ms=settings.dedup_ms,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        far=FarSettings(buffer_bytes=settings.far_buffer_bytes),
        counted_topics=settings.metrics_topics,
        transactions=TransactionSettings(
            settings.transaction_timeout_ms,
            settings.transaction_check_ms,
            settings.transaction_check_max,
        ),
    )
    return await open_engine(
        settings.data_dir,
        clock=settings.clock,
        flush=settings.flush,
        settings=core,
        note=CrashNote(settings.data_dir),
    )


def _make_doors(
    engine: Any, settings: Settings, broker_socket: socket.socket | None, guard: Guard | None
) -> list[Door]:
    from horolog.server.auto_create import AutoCreate
    from horolog.server.grpc_front import GrpcFront
    from horolog.server.intake import Intake
    from horolog.server.tls import Certificate
    from horolog.server.transaction_checks import TransactionChecks

    certificate = Certificate(settings.tls_cert, settings.tls_key, settings.host)
    certificate.warn()
    intake = Intake(room_for(settings.connections), share=settings.address_share)
    made: GrpcEngine = AutoCreate(engine) if settings.auto_create_topics else engine
    grpc = GrpcFront(
        made,
        settings.host,
        settings.grpc_port,
        settings.broker_name,
        certificate=certificate,
        intake=intake,
        guard=guard,
    )
    if not settings.remoting:
        TransactionChecks(engine, [grpc.producers])
        return [grpc]
    from horolog.server.remoting.front import RemotingFront

    remoting = RemotingFront(
        _make_node(engine, settings, grpc),
        settings.host,
        settings.namesrv_port,
        settings.broker_port,
        vip_port=VIP_PORT if settings.broker_port == BROKER_PORT else 0,
        broker_socket=broker_socket,
        certificate=certificate,
        intake=intake,
        guard=guard,
    )
    TransactionChecks(engine, [grpc.producers, remoting.producers])
    return [grpc, remoting]


def _make_node(engine: Any, settings: Settings, neighbour: Neighbour) -> Node:
    """Make the broker as 4.x clients see it; admin tools see clients of the other door too."""
    from horolog.server.remoting.node import Node
    from horolog.server.remoting.settings import properties_of

    return Node(
        engine,
        settings.broker_name,
        settings.cluster_name,
        settings.advertised_host,
        auto_create=settings.remoting_auto_create,
        store_host=store_host(settings),
        levels=settings.levels,
        settings=properties_of(settings),
        data_dir=settings.data_dir,
        neighbours=[neighbour],
    )


def _make_exposition(engine: Any, settings: Settings) -> Exposition:
    from horolog.metrics.exposition import Exposition
    from horolog.metrics.figures import Figures

    return Exposition(
        Figures(
            engine,
            broker_name=settings.broker_name,
            data_dir=settings.data_dir,
            groups_max=settings.metrics_groups,
        )
    )
