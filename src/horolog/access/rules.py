"""Identities, and what they may do with topics and consumer groups.

A right is granted by name: `orders` is one topic, `orders-*` all topics with that prefix, `*` all.
Of the patterns that match, the closest one alone decides: the name itself, else the longest prefix,
else `*`; a name that no pattern matches is denied.

    topics = { "*" = "SUB", "orders-*" = "PUB|SUB", "orders-secret" = "DENY" }

    orders-paid    → PUB and SUB      orders-secret → nothing      audit → SUB

Topics of a consumer group, `%RETRY%group` and `%DLQ%group`, go by the rights to the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError, refused

_DECIDED_MAX = 4_096  # answers that an identity keeps; when full, all are dropped
_KEPT_NAME_MAX = 255  # characters; a longer name is nobody's, and is refused by who reads it
_OF_GROUPS = ("%RETRY%", "%DLQ%")


class Right(IntEnum):
    """What may be done.  Several rights are or-ed to a plain int: every request compares them."""

    DENY = 0
    PUB = 1  # send to it, recall from it
    SUB = 2  # take messages from it


EITHER = Right.PUB | Right.SUB

RIGHTS: dict[str, int] = {
    "DENY": Right.DENY,
    "PUB": Right.PUB,
    "SUB": Right.SUB,
    "PUB|SUB": Right.PUB | Right.SUB,
    "SUB|PUB": Right.PUB | Right.SUB,
    "ANY": Right.PUB | Right.SUB,
}
"""Rights by their names in an access file, which are RocketMQ's."""


class Kind(StrEnum):
    """The kinds of things that rights are granted to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"  # all actions that only administrators may do


class Need(NamedTuple):
    """One right that a request needs; any one of `rights` is enough."""

    kind: Kind
    name: str
    rights: int


Needs = tuple[Need, ...]

ADMIN: Needs = (Need(Kind.CLUSTER, "cluster", Right.DENY),)
"""The needs of an action that only administrators may do."""


def need_of_topic(name: str, rights: int) -> Need:
    """Return the need of an action on a topic; for a group's topic, the right of a group member."""
    make = _need_of_topic if len(name) > _KEPT_NAME_MAX else _known_need_of_topic
    return make(name, rights)


def _need_of_topic(name: str, rights: int) -> Need:
    for prefix in _OF_GROUPS:
        if name.startswith(prefix):
            return Need(Kind.GROUP, name.removeprefix(prefix), Right.SUB)
    return Need(Kind.TOPIC, name, rights)


# Short names only: also those are kept here that somebody sends who has no key.
_known_need_of_topic = lru_cache(maxsize=_DECIDED_MAX)(_need_of_topic)


def need_of_group(name: str) -> Need:
    """Return the need to be a member of a consumer group."""
    return Need(Kind.GROUP, name, Right.SUB)


class Patterns:
    """Rights by name; each name is decided once and kept."""

    def __init__(self, granted: Mapping[str, int]) -> None:
        self._exact = {name: right for name, right in granted.items() if not name.endswith("*")}
        prefixes = [(name[:-1], right) for name, right in granted.items() if name.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda each: -len(each[0]))
        self._decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the rights granted to a name."""
        if len(name) > _KEPT_NAME_MAX:
            return self._decide(name)
        found = self._decided.get(name)
        if found is None:
            found = self._decide(name)
            if len(self._decided) >= _DECIDED_MAX:
                self._decided.clear()
            self._decided[name] = found
        return found

    def _decide(self, name: str) -> int:
        if name in self._exact:
            return self._exact[name]
        return next((r for prefix, r in self._prefixes if name.startswith(prefix)), Right.DENY)


class Identity(NamedTuple):
    """The holder of an access key.

    secret     signs its requests; never disclosed
    token      for `Authorization: Bearer`; "": it has none
    is_admin   may do everything
    networks   from which it may connect; none: from anywhere
    """

    access_key: str
    secret: bytes
    token: str
    is_admin: bool
    topics: Patterns
    groups: Patterns
    networks: Sequence[IPv4Network | IPv6Network] = ()

    def __repr__(self) -> str:
        return f"Identity({self.access_key!r})"

    def check(self, needs: Iterable[Need]) -> None:
        """Raise FORBIDDEN if a need is not granted.

        A need with an empty name is skipped: the reader of the request refuses it.
        """
        if self.is_admin:
            return
        for kind, name, rights in needs:
            if not name:
                continue
            if kind is Kind.TOPIC:
                granted = self.topics.of(name)
            elif kind is Kind.GROUP:
                granted = self.groups.of(name)
            else:
                raise self._forbidden(kind, "Cluster", "it is not an administrator")
            if not granted & rights:
                wanted = " or ".join(r.name for r in (Right.PUB, Right.SUB) if r & rights)
                raise self._forbidden(
                    kind, f"{kind.capitalize()}:{name}", f"{wanted} is not granted"
                )

    def has(self, needs: Iterable[Need]) -> bool:
        """Return whether all needs are granted."""
        try:
            self.check(needs)
        except HorologError:
            return False
        return True

    def check_address(self, address: str) -> None:
        """Raise UNAUTHORIZED if the identity may not connect from this address."""
        if not self.networks:
            return
        try:
            found = ip_address(address)
        except ValueError:
            found = None
        mapped = getattr(found, "ipv4_mapped", None) or found
        if mapped is None or not any(mapped in network for network in self.networks):
            raise unauthorized(
                f"access key {self.access_key!r} is not accepted from {address or 'there'}"
            )

    def _forbidden(self, kind: Kind, what: str, why: str) -> HorologError:
        return refused(
            kind,
            f"User:{self.access_key} has no permission to access {what}, {why}",
            code=ErrorCode.FORBIDDEN,
        )


def unauthorized(why: str, field: str = "authorization") -> HorologError:
    """Build the error of a sender that is not known."""
    return refused(field, why, code=ErrorCode.UNAUTHORIZED)
