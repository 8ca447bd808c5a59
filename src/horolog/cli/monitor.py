"""`horolog monitor rules` and `dashboard`: files for Prometheus and Grafana of this version."""

from __future__ import annotations

from importlib import resources

import typer

from horolog.cli.options import EPILOG, register

app = typer.Typer(
    help="Print rules for Prometheus, and a dashboard for Grafana.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


def _print(name: str) -> None:
    typer.echo((resources.files("horolog.metrics") / name).read_text(encoding="utf-8"), nl=False)


def rules() -> None:
    """Print recording and alert rules for Prometheus.

    Example:
      horolog monitor rules > /etc/prometheus/horolog.rules.yml
    """
    _print("horolog.rules.yml")


def dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import.

    Example:
      horolog monitor dashboard > horolog.dashboard.json
    """
    _print("horolog.dashboard.json")


register(app, "rules", rules)
register(app, "dashboard", dashboard)
