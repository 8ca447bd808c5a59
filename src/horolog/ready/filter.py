"""Filters of consumers: tags, or SQL92 conditions on properties (`protocol.rocketmq.sql92`).

A tag filter is `*`, or tags joined by `||` (RocketMQ's TAG expressions).  It is tested in two
stages: the 32-bit code in the consume queue first (vectorised, `may_match`), then the tag text
itself (`takes`), because codes collide ("Aa" and "BB" have the same code).  The code of a message
that may have several tags has the bits of all its tags; the message may match if its code has all
bits of a wanted tag.  SQL92 has only the second stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, refused
from horolog.limits import FILTER_EXPRESSION_MAX, SQL_COST
from horolog.log.queue_unit import MANY_CODE
from horolog.protocol.rocketmq import layout, properties, sql92
from horolog.protocol.rocketmq.sql92 import Selector
from horolog.protocol.rocketmq.tags import bits_of_tag, split_tags, tags_code

Buffer = bytes | memoryview
_CODE_MIN, _CODE_MAX, _MANY_MAX = -(1 << 31), (1 << 31) - 1, 2 * MANY_CODE - 1


@dataclass(slots=True, frozen=True)
class TagFilter:
    """The tags that a consumer takes; `tags` is None for all."""

    tags: frozenset[str] | None = None
    codes: frozenset[int] = frozenset()
    bits: tuple[int, ...] = ()  # of each tag, as in the code of a message with several tags

    is_sql: ClassVar = False
    cost: ClassVar = 1  # of testing one unit; a scan is bounded by the sum of these costs

    @property
    def wants_all(self) -> bool:
        """Whether the filter takes every message."""
        return self.tags is None

    def takes(self, stored: Buffer) -> bool:
        """Return whether the filter takes a message; exact test by its stored layout."""
        view = memoryview(stored)
        text = properties.value_of(layout.properties_of(view), properties.TAGS) or ""
        return self.matches(text, has_many=layout.has_many_tags(view))

    def matches(self, tag: str, *, has_many: bool = False) -> bool:
        """Return whether a tag matches exactly; a message without a tag ("") matches only `*`."""
        if self.tags is None or (tag != "" and tag in self.tags):
            return True
        return has_many and not self.tags.isdisjoint(split_tags(tag))

    def may_match(self, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the units that may match by code; so do all damaged units."""
        codes = units["tags"]
        found: npt.NDArray[np.bool_]
        if len(self.codes) == 1:
            (code,) = self.codes
            found = codes == code
        else:
            found = np.isin(codes, np.fromiter(self.codes, np.int64, len(self.codes)))
        found |= (units["size"] == 0) | (codes < _CODE_MIN) | (codes > _MANY_MAX)
        if bool((several := codes > _CODE_MAX).any()):
            of_many = codes[several]
            found[several] |= np.logical_or.reduce([of_many & bits == bits for bits in self.bits])
        return found


ALL_TAGS = TagFilter()


@dataclass(slots=True, frozen=True)
class SqlFilter:
    """The messages that a consumer takes, by an SQL92 condition on their properties."""

    selector: Selector

    is_sql: ClassVar = True
    wants_all: ClassVar = False
    cost: ClassVar = SQL_COST

    def takes(self, stored: Buffer) -> bool:
        """Return whether the filter takes a message; exact test by its stored layout.

        An empty property counts as missing: RocketMQ's brokers do not read it.
        """
        known = properties.decode(layout.properties_of(memoryview(stored)))
        return self.selector.matches(lambda name: known.get(name) or None)

    def may_match(self, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of ones: units hold no properties, so every message may match."""
        return np.ones(len(units), np.bool_)


Filter = TagFilter | SqlFilter


def parse_filter(expression: str, *, is_sql: bool) -> Filter:
    """Parse a filter expression of either kind; ILLEGAL_FILTER if it is invalid."""
    return SqlFilter(sql92.parse(expression)) if is_sql else parse_tags(expression)


def parse_tags(expression: str) -> TagFilter:
    """Parse a TAG expression; ILLEGAL_FILTER if it is too long or has no tag between the bars."""
    return _parse(check_length(expression))


def check_length(expression: str) -> str:
    """Return a filter expression of either kind unchanged; ILLEGAL_FILTER if it is too long."""
    if len(expression) > FILTER_EXPRESSION_MAX:
        raise refused(
            "filter_expression",
            f"{len(expression)} characters; at most {FILTER_EXPRESSION_MAX} are allowed",
            f"{FILTER_EXPRESSION_MAX} characters",
            code=ErrorCode.ILLEGAL_FILTER,
        )
    return expression


@lru_cache(maxsize=128)
def _parse(expression: str) -> TagFilter:
    text = expression.strip()
    if text in ("", "*"):
        return ALL_TAGS
    tags = frozenset(part.strip() for part in text.split("||") if part.strip())
    if not tags:
        raise refused(
            "filter_expression",
            f"no tag in {expression[:40]!r}; use '*' or 'TagA || TagB'",
            code=ErrorCode.ILLEGAL_FILTER,
        )
    bits = tuple(bits_of_tag(tag) | MANY_CODE for tag in sorted(tags))
    return TagFilter(tags, frozenset(tags_code(tag) for tag in tags), bits)
