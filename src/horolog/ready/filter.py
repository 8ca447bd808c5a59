"""Filters of consumers: tags, or SQL92 conditions on properties (`protocol.rocketmq.sql92`).

Tags are `*`, or some joined by `||` (RocketMQ's TAG expressions).  Such a filter is tested in two stages: the 32-bit
code in the consume queue first (vectorised, `codes`), then the tag text itself (`takes`), because codes collide ("Aa"
and "BB" have the same one).  A message that may have several tags has the bits of all of them as its code, and may
match if it has all bits of a wanted one.  SQL92 has only the second stage.
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
    """Which tags a consumer takes; `tags` is None for all."""

    tags: frozenset[str] | None = None
    codes: frozenset[int] = frozenset()
    bits: tuple[int, ...] = ()  # of each tag, in a code of several

    is_sql: ClassVar = False
    cost: ClassVar = 1  # of a unit, in units of the bounds of a scan

    @property
    def wants_all(self) -> bool:
        """Whether nothing is filtered."""
        return self.tags is None

    def takes(self, stored: Buffer) -> bool:
        """Exact test of a message, by its stored layout."""
        view = memoryview(stored)
        text = properties.value_of(layout.properties_of(view), properties.TAGS) or ""
        return self.matches(text, has_many=layout.has_many_tags(view))

    def matches(self, tag: str, *, has_many: bool = False) -> bool:
        """Exact test; a message without a tag ("") is matched only by `*`."""
        if self.tags is None or (tag != "" and tag in self.tags):
            return True
        return has_many and not self.tags.isdisjoint(split_tags(tag))

    def may_match(self, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which units of a consume queue have the code of such a tag; of damaged ones the message has to say it."""
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
    """Which messages a consumer takes by their properties."""

    selector: Selector

    is_sql: ClassVar = True
    wants_all: ClassVar = False
    cost: ClassVar = SQL_COST

    def takes(self, stored: Buffer) -> bool:
        """Exact test of a message, by its stored layout."""
        known = properties.decode(layout.properties_of(memoryview(stored)))
        return self.selector.matches(known.get)

    def may_match(self, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Units of a consume queue do not tell: all may."""
        return np.ones(len(units), np.bool_)


Filter = TagFilter | SqlFilter


def parse_filter(expression: str, *, is_sql: bool) -> Filter:
    """Parse an expression of either kind, or ILLEGAL_FILTER."""
    return SqlFilter(sql92.parse(expression)) if is_sql else parse_tags(expression)


def parse_tags(expression: str) -> TagFilter:
    """Parse a TAG expression; too long, or nothing between the bars: ILLEGAL_FILTER."""
    return _parse(check_length(expression))


def check_length(expression: str) -> str:
    """An expression itself; ILLEGAL_FILTER if it is too long to be one of either kind."""
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
