"""Tag filters: `*`, or tags joined by `||` (RocketMQ's TAG expressions; protocol notes §6.1).

A filter is tested in two stages: the 32-bit code in the consume queue first (vectorised, `codes`), then the
tag text itself (`matches`), because codes collide ("Aa" and "BB" have the same one).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.limits import FILTER_EXPRESSION_MAX
from horolog.protocol.rocketmq.tags import tags_code

_CODE_MIN, _CODE_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(slots=True, frozen=True)
class TagFilter:
    """Which tags a consumer takes; `tags` is None for all."""

    tags: frozenset[str] | None = None
    codes: frozenset[int] = frozenset()

    def matches(self, tag: str) -> bool:
        """Exact test; a message without a tag ("") is matched only by `*`."""
        return self.tags is None or (tag != "" and tag in self.tags)

    def may_match(self, units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which units of a consume queue have the code of such a tag; of damaged ones the message has to say it."""
        codes = units["tags"]
        found: npt.NDArray[np.bool_]
        if len(self.codes) == 1:
            (code,) = self.codes
            found = codes == code
        else:
            found = np.isin(codes, np.fromiter(self.codes, np.int64, len(self.codes)))
        found |= (units["size"] == 0) | (codes < _CODE_MIN) | (codes > _CODE_MAX)
        return found


ALL_TAGS = TagFilter()


def parse_tags(expression: str) -> TagFilter:
    """Parse a TAG expression; too long, or nothing between the bars: ILLEGAL_FILTER."""
    if len(expression) > FILTER_EXPRESSION_MAX:
        raise HorologError(
            ErrorCode.ILLEGAL_FILTER,
            f"filter_expression: {len(expression)} characters; "
            f"at most {FILTER_EXPRESSION_MAX} are allowed",
            field="filter_expression",
            limit=f"{FILTER_EXPRESSION_MAX} characters",
        )
    return _parse(expression)


@lru_cache(maxsize=128)
def _parse(expression: str) -> TagFilter:
    text = expression.strip()
    if text in ("", "*"):
        return ALL_TAGS
    tags = frozenset(part.strip() for part in text.split("||") if part.strip())
    if not tags:
        raise HorologError(
            ErrorCode.ILLEGAL_FILTER,
            f"filter_expression: no tag in {expression[:40]!r}; use '*' or 'TagA || TagB'",
            field="filter_expression",
        )
    return TagFilter(tags, frozenset(tags_code(tag) for tag in tags))
