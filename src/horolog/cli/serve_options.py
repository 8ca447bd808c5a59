"""The flags of `horolog serve`: one for each setting of `horolog.config`, under the same name.

They repeat the descriptions of the settings, since help pages load no pydantic.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Flush(StrEnum):
    """Values of --flush."""

    SYNC = "sync"
    INTERVAL = "interval"
    OS = "os"


class ClockKind(StrEnum):
    """Values of --clock."""

    SYSTEM = "system"
    SIMULATED = "simulated"


class LogForm(StrEnum):
    """Values of --log-format."""

    PLAIN = "plain"
    JSON = "json"


def _port(default: int, help_text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="N", help=f"{help_text}  [default: {default}]", show_default=False
    )
    return option


DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory for all data.  [default: horolog-data]"),
]
Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address that clients connect to.  [default: 127.0.0.1]"),
]
GrpcPort = Annotated[int | None, _port(8081, "Port for RocketMQ 5.x clients, gRPC; 0: a free one.")]
Remoting = Annotated[
    bool | None,
    typer.Option(
        "--remoting/--no-remoting",
        help="Whether RocketMQ 4.x clients can connect, on --namesrv-port and --broker-port.  [default: on]",
    ),
]
NamesrvPort = Annotated[
    int | None, _port(9876, "Port of the name server for RocketMQ 4.x clients; 0: a free one.")
]
BrokerPort = Annotated[
    int | None,
    _port(10911, "Port of the broker for RocketMQ 4.x clients, named in routes; 0: a free one."),
]
AdvertisedHost = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        help="Name or address of this machine in routes of 4.x clients; without one, the address that the"
        " client connected to.  [default: none]",
    ),
]
AdminPort = Annotated[
    int | None, _port(8090, "Port of the admin API, HTTP on 127.0.0.1; 0: a free one.")
]
AdminHosts = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Names, or NAME:PORT, under which clients may reach the admin API besides its address"
        " and localhost, such as broker.internal or localhost:9000, separated by commas.  [default: none]",
    ),
]
Connections = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="About how many clients may be connected; fewer where the limit on open files is low."
        "  [default: 20000]",
        show_default=False,
    ),
]
AddressShare = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT",
        help="Percentage of connections, waiting polls and request bytes that the clients of one address may take;"
        " behind a proxy: 100.  [default: 75]",
        show_default=False,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificate (PEM) for clients that ask for TLS, read again on SIGHUP; without one,"
        " a self-signed one is made when the first of them connects.  [default: none]",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Private key of --tls-cert (PEM); by default in the same file.  [default: none]",
    ),
]
Access = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Identities, their secrets and rights (TOML), read again on SIGHUP; without one, everybody may do"
        " everything.  [default: none]",
    ),
]
BrokerName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name in routes and recall handles.  [default: broker-a]"),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the cluster, for 4.x clients.  [default: DefaultCluster]"
    ),
]
AutoCreateTopics = Annotated[
    bool | None,
    typer.Option(
        "--auto-create-topics/--no-auto-create-topics",
        help="Let 5.x clients create normal topics by asking for their routes or by sending.  [default: off]",
    ),
]
RemotingAutoCreate = Annotated[
    bool | None,
    typer.Option(
        "--remoting-auto-create/--no-remoting-auto-create",
        help="Let 4.x clients create mixed topics by sending.  [default: on]",
    ),
]
MaxDelay = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How far ahead a message may be due, such as 24h; at most ten years.  [default: 3653d]",
    ),
]
MessageDelayLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVELS",
        help="Delays of level 1, 2 … of 4.x clients, such as '1s 10s 5m 2h 1d'; stored messages keep their"
        " due times.  [default: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h]",
        show_default=False,
    ),
]
DedupWindow = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long a repeated send (same topic, message id and body) is answered with the first"
        " result, without storing the message twice; 0s: never.  [default: 120s]",
    ),
]
TransactionTimeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Time after a half message until its producer is asked for the outcome of the transaction,"
        " unless the message names another.  [default: 6s]",
    ),
]
TransactionCheckInterval = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Time until the producer is asked again; twice as long from the sixth time on.  [default: 30s]",
    ),
]
TransactionCheckMax = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="How many times the producer is asked before a transaction is given up.  [default: 15]",
        show_default=False,
    ),
]
FlushWhen = Annotated[
    Flush | None,
    typer.Option(
        help="When the log is synced: before every reply (sync), twice a second (interval),"
        " or by the kernel (os).  [default: sync]"
    ),
]
WhichClock = Annotated[
    ClockKind | None,
    typer.Option(
        help="The machine's clock, or one that moves only by `horolog clock advance`;"
        " fixed for the life of a data directory.  [default: system]"
    ),
]
Retention = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long the log keeps delivered messages, such as 24h or 7d; pending messages are never"
        " dropped.  [default: 72h]",
    ),
]
RetentionBytes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Bytes of log above which the oldest part is dropped sooner; 0: no limit.  [default: 0]",
        show_default=False,
    ),
]
FarBufferBytes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Bytes of messages due after the near window to gather before they become a run.  "
        "[default: 134217728]",
        show_default=False,
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Level of the log on stderr: debug, info, warning or error.  [default: info]",
    ),
]
LogFormat = Annotated[
    LogForm | None, typer.Option(help="Lines of text, or one JSON object a line.  [default: plain]")
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help='TOML file with these settings (data_dir = "…").'),
]
