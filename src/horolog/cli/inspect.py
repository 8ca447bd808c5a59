"""`horolog inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.exits import Exit
from horolog.cli.output import print_fields, print_json, print_table

if TYPE_CHECKING:
    from horolog.cli.inspection.report import Report


def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Any file of a data directory, or a directory.")
    ],
    records: Annotated[
        bool, typer.Option("--records", help="For a log segment: show records instead of frames.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Rows to show; all rows are checked.")
    ] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Read a file of a data directory offline: fields, rows, and the verdict on every checksum.

    Nothing is changed, and no broker is needed. Exit code 0: intact, a torn tail included; 1: damaged
    or unreadable; 3: no such file.

    Examples:
      horolog inspect horolog-data/shard-00/log/00000000000000000000.log --records
      horolog inspect horolog-data/shard-00/hours/0000491637/delay.idx
      horolog inspect horolog-data
    """
    from horolog.cli.inspection.files import inspect_file, inspect_tree

    if file.is_dir():
        reports = list(inspect_tree(file))
        _show_tree(file, reports, as_json=as_json)
    else:
        reports = [inspect_file(file, limit=limit, show_records=records)]
        _show_file(reports[0], as_json=as_json)
    return Exit.FAILURE if any(report.problems for report in reports) else Exit.OK


def _show_file(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_json())
        return
    typer.echo(f"{report.path}: {report.kind}")
    print_fields(report.fields)
    if report.rows:
        typer.echo()
        print_table(report.head, report.rows)
    for note in report.notes:
        typer.echo(f"note: {note}")
    for problem in report.problems:
        typer.echo(f"DAMAGED: {problem}")


def _show_tree(directory: Path, reports: list[Report], *, as_json: bool) -> None:
    if as_json:
        print_json({"directory": str(directory), "files": [report.as_json() for report in reports]})
        return
    print_table(
        ("FILE", "KIND", "ROWS", "VERDICT"),
        [
            (
                str(Path(report.path).relative_to(directory)),
                report.kind,
                report.fields.get("rows", ""),
                "; ".join(report.problems) or "ok",
            )
            for report in reports
        ],
    )
