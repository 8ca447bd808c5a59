"""Output of commands: tables with aligned columns, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer


def print_json(result: Mapping[str, object]) -> None:
    """Print one JSON object, indented."""
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))


def printable(text: object) -> str:
    """Return a text on one line, without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "·" for letter in str(text))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns under their names; a column of numbers alone is aligned to the right."""
    listed = list(rows)
    texts = [[str(cell) for cell in row] for row in listed]
    columns = range(len(head))
    widths = [max([len(head[i]), *(len(row[i]) for row in texts)]) for i in columns]
    right = [bool(listed) and all(isinstance(row[i], int) for row in listed) for i in columns]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(cells, widths, right, strict=True)
        ).rstrip()

    typer.echo(line(head))
    for row in texts:
        typer.echo(line(row))


def print_cut(shown: int, do: str) -> None:
    """Say, on stderr, that a list ends at its limit, and what to do about it."""
    typer.echo(f"the list ends at its limit, {shown:,}: {do}", err=True)


def print_stored(stored: Mapping[str, Any]) -> None:
    """Print what a send or a reschedule has stored: id, due time, place if visible, and handle."""
    scheduled = stored["queue_offset"] < 0
    print_fields(
        {
            "message id": stored["message_id"],
            "due": stored["deliver_at"],
            "queue": "" if scheduled else f"{stored['queue_id']}, offset {stored['queue_offset']}",
            "recall handle": stored["recall_handle"],
        }
    )


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one `name  value` line per field; empty values are left out."""
    width = max((len(name) for name in fields), default=0)
    for name, shown in fields.items():
        if shown not in ("", None):
            typer.echo(f"{name.ljust(width)}  {shown}")
