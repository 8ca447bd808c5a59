"""The settings of one broker process: immutable, and validated once.

These are settings of a *node*: they may differ between starts of the same data directory.  The
properties of the directory (format version, log id, kind of clock) are stored in its `meta` file,
and a mismatch is refused when it is opened.  `config_sources` reads the settings, and
`config_values` checks each value.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from horolog.config_values import (
    AdvertisedHost,
    DataDir,
    DedupWindow,
    DelayLevels,
    FilePath,
    Host,
    HostNames,
    MaxDelay,
    Retention,
    TransactionTime,
    Word,
    host_names,
)
from horolog.limits import (
    ADDRESS_SHARE,
    CONNECTIONS_MAX,
    COUNTED_GROUPS,
    COUNTED_MAX,
    COUNTED_TOPICS,
    FAR_BUFFER_BYTES,
    FAR_BUFFER_BYTES_MAX,
    FAR_BUFFER_BYTES_MIN,
    RETENTION_BYTES_MAX,
    TRANSACTION_CHECK_MAX,
)
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, Levels, parse_levels
from horolog.units import parse_duration_ms

ENVIRONMENT_PREFIX = "HOROLOG_"
BROKER_PORT = 10_911  # the default of RocketMQ
VIP_PORT = BROKER_PORT - 2  # port to which RocketMQ clients before 4.5 send
_WITH_LOOPBACK = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::"})  # noqa: S104 - hosts with 127.0.0.1


class Settings(BaseSettings):
    """The settings of `horolog serve`.  Make them with `load`, which explains bad values."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid", validate_default=False
    )

    data_dir: DataDir = Field(Path("horolog-data"), description="Directory for all data.")
    host: Host = Field("127.0.0.1", description="Address that clients connect to.")
    grpc_port: int = Field(
        8081, ge=0, le=65_535, description="Port for RocketMQ 5.x clients, gRPC; 0: a free one."
    )
    remoting: bool = Field(
        default=True,
        description="Whether RocketMQ 4.x clients can connect, on `namesrv_port` and "
        "`broker_port`.",
    )
    namesrv_port: int = Field(
        9876,
        ge=0,
        le=65_535,
        description="Port of the name server for RocketMQ 4.x clients; 0: a free one.",
    )
    broker_port: int = Field(
        BROKER_PORT,
        ge=0,
        le=65_535,
        description="Port of the broker for RocketMQ 4.x clients, named in routes; 0: a free one.",
    )
    advertised_host: AdvertisedHost = Field(
        "",
        description="Name or address of this machine in routes of 4.x clients; without one, the "
        "address that the client connected to.",
    )
    admin_port: int = Field(
        8090,
        ge=0,
        le=65_535,
        description="Port of the admin API, HTTP on 127.0.0.1; 0: a free one.",
    )
    admin_hosts: HostNames = Field(
        "",
        description="Names, or NAME:PORT, under which clients may reach the admin API besides its address "
        "and localhost, such as broker.internal or localhost:9000, separated by commas.",
    )
    connections: int = Field(
        CONNECTIONS_MAX,
        ge=16,
        le=1_000_000,
        description="About how many clients may be connected; fewer where the limit on open files "
        "is low.",
    )
    address_share: int = Field(
        ADDRESS_SHARE,
        ge=1,
        le=100,
        description="Percentage of connections, waiting polls and request bytes that the clients "
        "of one address may take; behind a proxy: 100.",
    )
    tls_cert: FilePath = Field(
        None,
        description="Certificate (PEM) for clients that ask for TLS, read again on SIGHUP; without "
        "one, a self-signed one is made when the first of them connects.",
    )
    tls_key: FilePath = Field(
        None, description="Private key of `tls_cert` (PEM); by default in the same file."
    )
    access: FilePath = Field(
        None,
        description="Identities, their secrets and rights (TOML), read again on SIGHUP; without "
        "one, everybody may do everything.",
    )
    broker_name: Word = Field(
        "broker-a", min_length=1, max_length=127, description="Name in routes and recall handles."
    )
    cluster_name: Word = Field(
        "DefaultCluster",
        min_length=1,
        max_length=127,
        description="Name of the cluster, for 4.x clients.",
    )
    auto_create_topics: bool = Field(
        default=False,
        description="Let 5.x clients create normal topics by asking for their routes or by "
        "sending.",
    )
    remoting_auto_create: bool = Field(
        default=True,
        description="Let 4.x clients create mixed topics by sending.",
    )
    max_delay: MaxDelay = Field(
        "3653d", description="How far ahead a message may be due, such as 24h; at most ten years."
    )
    message_delay_level: DelayLevels = Field(
        DEFAULT_LEVELS,
        description="Delays of level 1, 2 … of 4.x clients, such as '1s 10s 5m 2h 1d'; stored "
        "messages keep their due times.",
    )
    dedup_window: DedupWindow = Field(
        "120s",
        description="How long a repeated send (same topic, message id and body) is answered with the "
        "first result, without storing the message twice; 0s: never.",
    )
    transaction_timeout: TransactionTime = Field(
        "6s",
        description="Time after a half message until its producer is asked for the outcome of the "
        "transaction, unless the message names another.",
    )
    transaction_check_interval: TransactionTime = Field(
        "30s",
        description="Time until the producer is asked again; twice as long from the sixth time on.",
    )
    transaction_check_max: int = Field(
        TRANSACTION_CHECK_MAX,
        ge=1,
        le=10_000,
        description="How many times the producer is asked before a transaction is given up.",
    )
    flush: Literal["sync", "interval", "os"] = Field(
        "sync",
        description="When the log is synced: before every reply (sync), twice a second (interval), "
        "or by the kernel (os).",
    )
    clock: Literal["system", "simulated"] = Field(
        "system",
        description="The machine's clock, or one that moves only by `horolog clock advance`; fixed "
        "for the life of a data directory.",
    )
    retention: Retention = Field(
        "72h",
        description="How long the log keeps delivered messages, such as 24h or 7d; pending "
        "messages are never dropped.",
    )
    retention_bytes: int = Field(
        0,
        ge=0,
        le=RETENTION_BYTES_MAX,
        description="Bytes of log above which the oldest part is dropped sooner; 0: no limit.",
    )
    far_buffer_bytes: int = Field(
        FAR_BUFFER_BYTES,
        ge=FAR_BUFFER_BYTES_MIN,
        le=FAR_BUFFER_BYTES_MAX,
        description="Bytes of messages due after the near window to gather before they become a "
        "run.",
    )
    metrics_topics: int = Field(
        COUNTED_TOPICS,
        ge=0,
        le=COUNTED_MAX,
        description="How many topics have their own metrics; later ones are counted together.",
    )
    metrics_groups: int = Field(
        COUNTED_GROUPS,
        ge=0,
        le=COUNTED_MAX,
        description="How many pairs of a consumer group and a topic have metrics; the others have "
        "none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Level of the log on stderr: debug, info, warning or error."
    )
    log_format: Literal["plain", "json"] = Field(
        "plain", description="Lines of text, or one JSON object a line."
    )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @property
    def conflicting_ports(self) -> tuple[str, str] | None:
        """Two settings with one port on one address, if any; the admin port is on 127.0.0.1."""
        doors = ["grpc_port", *(["namesrv_port", "broker_port"] if self.remoting else [])]
        names = [*doors, *(["admin_port"] if self.host.lower() in _WITH_LOOPBACK else [])]
        first_of: dict[int, str] = {}
        for name in names:
            port: int = getattr(self, name)
            if port and port in first_of:
                return first_of[port], name
            first_of[port] = name
        return None

    @property
    def admin_host_names(self) -> tuple[str, ...]:
        """The names in `admin_hosts`, in lower case."""
        return tuple(host_names(self.admin_hosts))

    @field_validator("*", mode="before")
    @classmethod
    def _text_has_no_nul(cls, given: object) -> object:
        if isinstance(given, str) and "\0" in given:
            raise ValueError("it has a NUL character")  # invalid in names of files and hosts
        return given

    @property
    def retention_ms(self) -> int:
        """`retention` in milliseconds."""
        return parse_duration_ms(self.retention)

    @property
    def max_delay_ms(self) -> int:
        """`max_delay` in milliseconds."""
        return parse_duration_ms(self.max_delay)

    @property
    def levels(self) -> Levels:
        """The parsed delays of `message_delay_level`."""
        return parse_levels(self.message_delay_level)

    @property
    def dedup_ms(self) -> int:
        """`dedup_window` in milliseconds."""
        return parse_duration_ms(self.dedup_window)

    @property
    def transaction_timeout_ms(self) -> int:
        """`transaction_timeout` in milliseconds."""
        return parse_duration_ms(self.transaction_timeout)

    @property
    def transaction_check_ms(self) -> int:
        """`transaction_check_interval` in milliseconds."""
        return parse_duration_ms(self.transaction_check_interval)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the values that `load` passes in.

        `load` has merged flags, environment and file, and knows the source of each value.
        """
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)
