"""The settings of one broker process: immutable, and validated once.

These are settings of a *node*: they may differ between starts of the same data directory.  The
properties of the directory (format version, log id, kind of clock) are stored in its `meta` file,
and a mismatch is refused when it is opened.  `config_sources` reads the settings.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from horolog.errors import HorologError
from horolog.limits import (
    ADDRESS_SHARE,
    CONNECTIONS_MAX,
    COUNTED_GROUPS,
    COUNTED_MAX,
    COUNTED_TOPICS,
    DAY_MS,
    DEDUP_MAX_MS,
    FAR_BUFFER_BYTES,
    FAR_BUFFER_BYTES_MAX,
    FAR_BUFFER_BYTES_MIN,
    HOUR_MS,
    MAX_DELAY_MS,
    MINUTE_MS,
    RETENTION_BYTES_MAX,
    SECOND_MS,
    TRANSACTION_CHECK_MAX,
    TRANSACTION_RECOVERY_MAX_MS,
)
from horolog.places import local_place
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, Levels, parse_levels
from horolog.protocol.rocketmq.names import check_topic
from horolog.units import parse_duration_ms

ENVIRONMENT_PREFIX = "HOROLOG_"
BROKER_PORT = 10_911  # the default of RocketMQ
VIP_PORT = BROKER_PORT - 2  # port to which RocketMQ clients before 4.5 send
_WITH_LOOPBACK = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::"})  # noqa: S104 - hosts with 127.0.0.1
_ADVERTISED = re.compile(r"[A-Za-z0-9._-]+")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


class Settings(BaseSettings):
    """The settings of `horolog serve`.  Make them with `load`, which explains bad values."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid", validate_default=False
    )

    data_dir: Path = Field(Path("horolog-data"), description="Directory for all data.")
    host: str = Field("127.0.0.1", description="Address that clients connect to.")
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
    advertised_host: str = Field(
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
    admin_hosts: str = Field(
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
    tls_cert: Path | None = Field(
        None,
        description="Certificate (PEM) for clients that ask for TLS, read again on SIGHUP; without "
        "one, a self-signed one is made when the first of them connects.",
    )
    tls_key: Path | None = Field(
        None, description="Private key of `tls_cert` (PEM); by default in the same file."
    )
    access: Path | None = Field(
        None,
        description="Identities, their secrets and rights (TOML), read again on SIGHUP; without "
        "one, everybody may do everything.",
    )
    broker_name: str = Field(
        "broker-a", min_length=1, max_length=127, description="Name in routes and recall handles."
    )
    cluster_name: str = Field(
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
    max_delay: str = Field(
        "3653d", description="How far ahead a message may be due, such as 24h; at most ten years."
    )
    message_delay_level: str = Field(
        DEFAULT_LEVELS,
        description="Delays of level 1, 2 … of 4.x clients, such as '1s 10s 5m 2h 1d'; stored "
        "messages keep their due times.",
    )
    dedup_window: str = Field(
        "120s",
        description="How long a repeated send (same topic, message id and body) is answered with the "
        "first result, without storing the message twice; 0s: never.",
    )
    transaction_timeout: str = Field(
        "6s",
        description="Time after a half message until its producer is asked for the outcome of the "
        "transaction, unless the message names another.",
    )
    transaction_check_interval: str = Field(
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
    retention: str = Field(
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
        return tuple(_host_names(self.admin_hosts))

    @field_validator("*", mode="before")
    @classmethod
    def _text_has_no_nul(cls, given: object) -> object:
        if isinstance(given, str) and "\0" in given:
            raise ValueError("it has a NUL character")  # invalid in names of files and hosts
        return given

    @field_validator("data_dir", "tls_cert", "tls_key", "access", mode="before")
    @classmethod
    def _place_is_not_empty(cls, place: object) -> object:
        if place == "":
            raise ValueError("a path is needed; leave it out instead")
        return place

    @field_validator("data_dir")
    @classmethod
    def _data_dir_is_on_a_disk(cls, path: Path) -> Path:
        try:
            return Path(local_place(path, "data_dir"))
        except HorologError as error:
            raise ValueError(error.message.removeprefix(f"data_dir: {str(path)!r} ")) from None

    @field_validator("admin_hosts")
    @classmethod
    def _admin_hosts_are_names(cls, text: str) -> str:
        for name in _host_names(text):
            if not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} is neither a name nor NAME:PORT")
        return text

    @field_validator("advertised_host")
    @classmethod
    def _advertised_host_is_one(cls, host: str) -> str:
        if host and not _ADVERTISED.fullmatch(host):
            try:
                IPv6Address(host)
            except ValueError:
                raise ValueError("a name or an address is needed, without a port") from None
        return host

    @property
    def retention_ms(self) -> int:
        """`retention` in milliseconds."""
        return parse_duration_ms(self.retention)

    @field_validator("retention")
    @classmethod
    def _retention_is_in_range(cls, text: str) -> str:
        if _duration(text) < MINUTE_MS:
            raise ValueError("at least 1m is needed")
        return text

    @property
    def max_delay_ms(self) -> int:
        """`max_delay` in milliseconds."""
        return parse_duration_ms(self.max_delay)

    @field_validator("max_delay")
    @classmethod
    def _max_delay_is_in_range(cls, text: str) -> str:
        delay_ms = _duration(text)
        if not SECOND_MS <= delay_ms <= MAX_DELAY_MS:
            raise ValueError(f"1s to {MAX_DELAY_MS // DAY_MS}d are allowed")
        return text

    @property
    def levels(self) -> Levels:
        """The parsed delays of `message_delay_level`."""
        return parse_levels(self.message_delay_level)

    @field_validator("message_delay_level")
    @classmethod
    def _levels_are_delays(cls, text: str) -> str:
        try:
            return parse_levels(text).text
        except HorologError as error:
            raise ValueError(error.message.partition(": ")[2]) from None

    @property
    def dedup_ms(self) -> int:
        """`dedup_window` in milliseconds."""
        return parse_duration_ms(self.dedup_window)

    @field_validator("dedup_window")
    @classmethod
    def _dedup_window_is_in_range(cls, text: str) -> str:
        if _duration(text) > DEDUP_MAX_MS:
            raise ValueError(f"0s to {DEDUP_MAX_MS // HOUR_MS}h are allowed")
        return text

    @property
    def transaction_timeout_ms(self) -> int:
        """`transaction_timeout` in milliseconds."""
        return parse_duration_ms(self.transaction_timeout)

    @property
    def transaction_check_ms(self) -> int:
        """`transaction_check_interval` in milliseconds."""
        return parse_duration_ms(self.transaction_check_interval)

    @field_validator("transaction_timeout", "transaction_check_interval")
    @classmethod
    def _transaction_time_is_in_range(cls, text: str) -> str:
        if not SECOND_MS <= _duration(text) <= TRANSACTION_RECOVERY_MAX_MS:
            raise ValueError(f"1s to {TRANSACTION_RECOVERY_MAX_MS // HOUR_MS}h are allowed")
        return text

    @field_validator("host")
    @classmethod
    def _host_is_not_blank(cls, host: str) -> str:
        if not host.strip():
            raise ValueError("an address such as 127.0.0.1 or 0.0.0.0 is needed")
        return host

    @field_validator("broker_name", "cluster_name")
    @classmethod
    def _name_is_a_word(cls, name: str) -> str:
        try:
            return check_topic(name)  # words of a handle are separated by blanks, so one word
        except HorologError as error:
            raise ValueError(error.message.replace("topic", "name", 1)) from None

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


def _host_names(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",")] if text.strip() else []


def _duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except HorologError as error:
        raise ValueError(error.message.removeprefix("duration: ")) from None
