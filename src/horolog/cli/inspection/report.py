"""The findings of the reader of one file: fields, a table, notes and problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from horolog.units import TIME_MAX_MS, format_time_ms

OK = "ok"
BAD = "BAD"
NOT_INTACT = "not intact: magic, length or a CRC is wrong"  # a problem of a whole file


def verdict(good: bool) -> str:
    """Return the word of a CRC column."""
    return OK if good else BAD


def instant(epoch_ms: int) -> str:
    """Return an instant as text; a value that is no instant (0, garbage) as its digits."""
    return format_time_ms(epoch_ms) if 0 < epoch_ms <= TIME_MAX_MS else str(epoch_ms)


@dataclass
class Report:
    """The findings about one file.

    rows      the first rows, at most as many as asked for; `fields["rows"]` counts all
    problems  what makes the file damaged; a torn tail is a note, because every crash may leave one
    """

    path: str
    kind: str
    fields: dict[str, object] = field(default_factory=dict)
    head: Sequence[str] = ()
    rows: list[tuple[object, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def take(self, rows: Iterable[tuple[object, ...]], limit: int) -> None:
        """Keep the first `limit` rows and count all."""
        count = 0
        for row in rows:
            if count < limit:
                self.rows.append(row)
            count += 1
        self.fields["rows"] = count
        if count > limit:
            self.notes.append(f"{count - limit} more rows; see --limit")

    def as_json(self) -> dict[str, Any]:
        """Return the fields for --json."""
        names = [name.lower().replace(" ", "_") for name in self.head]
        return {
            "file": self.path,
            "kind": self.kind,
            "ok": not self.problems,
            "fields": self.fields,
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows],
            "notes": self.notes,
            "problems": self.problems,
        }
