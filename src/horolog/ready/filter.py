"""Tag filters: `*`, or tags joined by `||` (RocketMQ's TAG expressions; protocol notes §6.1).

A filter is tested in two stages: the 32-bit code in the consume queue first (vectorised, `codes`), then the
tag text itself (`matches`), because codes collide ("Aa" and "BB" have the same one).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.rocketmq.tags import tags_code


@dataclass(slots=True, frozen=True)
class TagFilter:
    """Which tags a consumer takes; `tags` is None for all."""

    tags: frozenset[str] | None = None
    codes: frozenset[int] = frozenset()

    def matches(self, tag: str) -> bool:
        """Exact test; a message without a tag ("") is matched only by `*`."""
        return self.tags is None or (tag != "" and tag in self.tags)


ALL_TAGS = TagFilter()


@lru_cache(maxsize=1024)
def parse_tags(expression: str) -> TagFilter:
    """Parse a TAG expression; nothing between the bars: ILLEGAL_FILTER."""
    text = expression.strip()
    if text in ("", "*"):
        return ALL_TAGS
    tags = frozenset(part.strip() for part in text.split("||") if part.strip())
    if not tags:
        raise HorologError(
            ErrorCode.ILLEGAL_FILTER,
            f"filter_expression: no tag in {expression!r}; use '*' or 'TagA || TagB'",
            field="filter_expression",
        )
    return TagFilter(tags, frozenset(tags_code(tag) for tag in tags))
