"""The values that settings take: types of `config.Settings` with the checks of their texts.

A check raises ValueError with what is allowed; `config_sources` adds where the value came from.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from horolog.errors import HorologError
from horolog.limits import (
    DAY_MS,
    DEDUP_MAX_MS,
    HOUR_MS,
    MAX_DELAY_MS,
    MINUTE_MS,
    SECOND_MS,
    TRANSACTION_RECOVERY_MAX_MS,
)
from horolog.places import local_place
from horolog.protocol.rocketmq.delays import parse_levels
from horolog.protocol.rocketmq.names import check_topic
from horolog.units import DURATION_MAX_MS, parse_duration_ms

_ADVERTISED = re.compile(r"[A-Za-z0-9._-]+")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def host_names(text: str) -> list[str]:
    """Return the names, or NAME:PORT, of a list separated by commas, in lower case."""
    return [name.strip().lower() for name in text.split(",")] if text.strip() else []


def _check_path(given: object) -> object:
    if given == "":
        raise ValueError("a path is needed; leave it out instead")
    return given


def _check_data_dir(path: Path) -> Path:
    try:
        return Path(local_place(path, "data_dir"))
    except HorologError as error:
        raise ValueError(error.message.removeprefix(f"data_dir: {str(path)!r} ")) from None


def _check_host(host: str) -> str:
    if not host.strip():
        raise ValueError("an address such as 127.0.0.1 or 0.0.0.0 is needed")
    return _check_advertised(host)


def _check_host_names(text: str) -> str:
    for name in host_names(text):
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is neither a name nor NAME:PORT")
    return text


def _check_advertised(host: str) -> str:
    if host and not _ADVERTISED.fullmatch(host):
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError("a name or an address is needed, without a port") from None
    return host


def _check_levels(text: str) -> str:
    try:
        return parse_levels(text).text
    except HorologError as error:
        raise ValueError(error.message.partition(": ")[2]) from None


def _check_word(name: str) -> str:
    try:
        return check_topic(name)  # words of a handle are separated by blanks, so one word
    except HorologError as error:
        raise ValueError(error.message.replace("topic", "name", 1)) from None


def _duration(least_ms: int, most_ms: int, allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        try:
            duration_ms = parse_duration_ms(text)
        except HorologError as error:
            raise ValueError(error.message.removeprefix("duration: ")) from None
        if not least_ms <= duration_ms <= most_ms:
            raise ValueError(allowed)
        return text

    return AfterValidator(check)


DataDir = Annotated[Path, BeforeValidator(_check_path), AfterValidator(_check_data_dir)]
FilePath = Annotated[Path | None, BeforeValidator(_check_path)]
Host = Annotated[str, AfterValidator(_check_host)]
HostNames = Annotated[str, AfterValidator(_check_host_names)]
AdvertisedHost = Annotated[str, AfterValidator(_check_advertised)]
Word = Annotated[str, AfterValidator(_check_word)]
DelayLevels = Annotated[str, AfterValidator(_check_levels)]
MaxDelay = Annotated[
    str, _duration(SECOND_MS, MAX_DELAY_MS, f"1s to {MAX_DELAY_MS // DAY_MS}d are allowed")
]
DedupWindow = Annotated[
    str, _duration(0, DEDUP_MAX_MS, f"0s to {DEDUP_MAX_MS // HOUR_MS}h are allowed")
]
TransactionTime = Annotated[
    str,
    _duration(
        SECOND_MS,
        TRANSACTION_RECOVERY_MAX_MS,
        f"1s to {TRANSACTION_RECOVERY_MAX_MS // HOUR_MS}h are allowed",
    ),
]
Retention = Annotated[str, _duration(MINUTE_MS, DURATION_MAX_MS, "at least 1m is needed")]
