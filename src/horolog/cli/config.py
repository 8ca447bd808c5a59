"""`horolog config example` and `check`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.options import EPILOG, AsJson, register
from horolog.cli.output import print_json
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.config import Settings

app = typer.Typer(
    help="Write an example of a configuration file, and check one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EPILOG,
)


def example() -> None:
    """Print a configuration file with every setting, its default, unit and meaning.

    Every line is commented out, so the file changes nothing before you edit it.

    Examples:
      horolog config example > horolog.toml
    """
    from horolog.cli.config_example import example as make

    typer.echo(make(), nl=False)


def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="TOML file for `horolog serve --config`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check a configuration file as `horolog serve` would read it, with the files that it names.

    Flags and environment are ignored; no broker is needed, and none is started. Exit code 0: the
    file is valid; 2: it is refused, with the setting and the reason.

    Examples:
      horolog config check /etc/horolog/horolog.toml
      horolog config check horolog.toml --json
    """
    from horolog.access.file import read_access
    from horolog.cli.exposure import exposures
    from horolog.config_sources import load
    from horolog.errors import HorologError
    from horolog.server.ports import bind
    from horolog.server.tls import Certificate

    settings = load({}, config_file=file, environment={})
    certificate = Certificate(settings.tls_cert, settings.tls_key, settings.host)
    if settings.access is not None:
        read_access(settings.access)
    changed = _changed(settings)
    warnings = exposures(settings.host, guarded=settings.access is not None, flush=settings.flush)
    if why := certificate.invalidity(time.time()):
        warnings.append(why)
    try:
        bind(settings.host, 0, "host").close()
    except HorologError as error:  # the file may be meant for another machine
        warnings.append(error.message.removeprefix("--"))
    if as_json:
        print_json({"file": str(file), "settings": changed, "warnings": warnings})
        return
    for name, shown in changed.items():
        typer.echo(f"{name} = {shown}")
    for warning in warnings:
        typer.echo(f"warning: {warning}")
    typer.echo(f"{file}: can be used; {counted(len(changed), 'setting')} other than the default")


def _changed(settings: Settings) -> dict[str, object]:
    """Return the settings that differ from their default, as JSON values."""
    fields = type(settings).model_fields
    return {
        name: shown if isinstance(shown, bool | int) else str(shown)
        for name, setting in fields.items()
        if (shown := getattr(settings, name)) != setting.default
    }


register(app, "example", example)
register(app, "check", check)
