"""`horolog pipeline …`: the jobs that run on Spark, each in a file of its own, `pipeline_<job>`."""

from __future__ import annotations

import typer

from horolog.cli import pipeline_audit, pipeline_load, pipeline_offload
from horolog.cli.options import EPILOG, register

app = typer.Typer(
    help=(
        "Run jobs on Spark, for loads, the lake and whole logs. They need Java and horolog[spark]."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)
register(app, "load", pipeline_load.load)
register(app, "audit", pipeline_audit.audit)
register(app, "forecast", pipeline_audit.forecast)
register(app, "rebuild", pipeline_audit.rebuild)
register(app, "offload", pipeline_offload.offload)
register(app, "promote", pipeline_offload.promote)
