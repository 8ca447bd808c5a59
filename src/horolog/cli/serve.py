"""`horolog serve`; its flags are in `serve_options`."""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from typing import TYPE_CHECKING

from horolog.cli.exits import exit_of
from horolog.cli.serve_options import (
    Access,
    AddressShare,
    AdminHosts,
    AdminPort,
    AdvertisedHost,
    AutoCreateTopics,
    BrokerName,
    BrokerPort,
    ClusterName,
    Config,
    Connections,
    DataDir,
    DedupWindow,
    FarBufferBytes,
    FlushWhen,
    GrpcPort,
    Host,
    LogFormat,
    LogLevel,
    MaxDelay,
    MessageDelayLevel,
    NamesrvPort,
    Remoting,
    RemotingAutoCreate,
    Retention,
    RetentionBytes,
    TlsCert,
    TlsKey,
    TransactionCheckInterval,
    TransactionCheckMax,
    TransactionTimeout,
    WhichClock,
)
from horolog.errors import HorologError

if TYPE_CHECKING:
    from horolog.config import Settings


def serve(
    *,
    data_dir: DataDir = None,
    host: Host = None,
    grpc_port: GrpcPort = None,
    remoting: Remoting = None,
    namesrv_port: NamesrvPort = None,
    broker_port: BrokerPort = None,
    advertised_host: AdvertisedHost = None,
    admin_port: AdminPort = None,
    admin_hosts: AdminHosts = None,
    connections: Connections = None,
    address_share: AddressShare = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    access: Access = None,
    broker_name: BrokerName = None,
    cluster_name: ClusterName = None,
    auto_create_topics: AutoCreateTopics = None,
    remoting_auto_create: RemotingAutoCreate = None,
    max_delay: MaxDelay = None,
    message_delay_level: MessageDelayLevel = None,
    dedup_window: DedupWindow = None,
    transaction_timeout: TransactionTimeout = None,
    transaction_check_interval: TransactionCheckInterval = None,
    transaction_check_max: TransactionCheckMax = None,
    flush: FlushWhen = None,
    clock: WhichClock = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    far_buffer_bytes: FarBufferBytes = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config: Config = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    Prints one line with the actual ports when it is ready. A setting comes from its flag, else from
    the environment (HOROLOG_GRPC_PORT …), else from --config, else it is the default.

    Examples:
      horolog serve
      horolog serve --data-dir /var/lib/horolog --flush interval
      horolog serve --data-dir "$(mktemp -d)" --grpc-port 0 --admin-port 0 --no-remoting
    """
    given = {**locals()}  # the settings that have flags, by name, and `config`
    config_file = given.pop("config")
    from horolog.config_sources import load

    flags = {
        name: each.value if isinstance(each, StrEnum) else each for name, each in given.items()
    }
    return _run(load(flags, config_file=config_file))


def _run(settings: Settings) -> int:
    """Run the broker from its start to its end, and return its exit code."""
    from horolog.config_sources import mistyped
    from horolog.server.logs import configure_logs
    from horolog.storage.descriptors import check_hard_limit

    configure_logs(settings.log_level, settings.log_format)
    log = logging.getLogger("horolog.server")
    for variable, meant in mistyped(os.environ).items():
        log.warning("%s is no setting, and is ignored; is %s meant?", variable, meant)
    try:
        check_hard_limit()  # before the imports below, which open files as well
        import uvloop

        from horolog.cli.pipeline_offload import promote_late
        from horolog.server import main as server
        from horolog.server.parts import real_parts

        async def serve() -> int:
            try:
                return await server.serve(settings, real_parts(promote_late))
            finally:
                server.ignore_signals()

        return uvloop.run(serve())
    except HorologError as error:
        if settings.log_format == "plain":
            raise  # reported as one sentence
        log.critical("%s", error.message)
        return exit_of(error)
