"""Pages of docs/reference that are made from the code; `PAGES` has their names.

python -m horolog.cli.reference docs/reference     # writes the pages; a test compares them
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from horolog.admin.status import http_status
from horolog.cli import exits
from horolog.cli.config_example import example
from horolog.cli.limits_page import limits_page
from horolog.cli.main import app
from horolog.cli.remoting_page import remoting_page
from horolog.config import ENVIRONMENT_PREFIX, Settings
from horolog.config_sources import flag_of
from horolog.errors import ErrorCode, HorologError
from horolog.metrics.page import metrics_page

_WIDTH = 100
_MADE = "<!-- made by `python -m horolog.cli.reference docs/reference`; a test compares -->"
_CLI = f"""# Command line

{_MADE}

Every command that talks to a broker takes `--admin URL` (or the variable `HOROLOG_ADMIN`) and
`--json`. An error is one sentence on stderr that names the flag; the exit code tells its kind.
"""
_SETTINGS = f"""# Settings

{_MADE}

Settings of a node, for `horolog serve`. The value of a setting comes from its flag, else from the
environment, else from the TOML file given with `--config`, else it is the default. An unknown key in
the file is refused; an unknown variable is ignored, with a warning in the log if it looks like a
setting.
Settings may differ between starts of the same data directory, except for the clock: its kind is
written into the directory, and a start with the other kind is refused.

[horolog.toml](horolog.toml) is a file with all settings, which `horolog config example` prints;
`horolog config check FILE` checks a file as a start would read it.
"""
_ERRORS = f"""# Errors

{_MADE}

Every error has a code, a sentence, the field and the limit that it is about, and two flags:
*retriable* (the same call may succeed later) and *fatal* (the broker or its data directory cannot
continue). Over HTTP an error has a status, on the command line an exit code. A method that a path
of the admin API does not support is `bad_request` with status 405.
"""
_LIMITS = f"""# Limits

{_MADE}

Everything has a limit; `src/horolog/limits.py` declares all of them, each with its reason. Limits
are not settings. Their names end in the unit: `_MS` is time, `_BYTES` bytes, other limits are
counts. [grpc.md](grpc.md) lists the limits that clients meet, in the words of the protocol.
"""


def cli_page() -> str:
    """Return docs/reference/cli.md."""
    parts = [_CLI, "## Exit codes\n", _exit_table()]
    for path, text in _commands(typer.main.get_command(app), "horolog", None):
        parts.append(f"## {path}\n")
        parts.append(f"```text\n{text}\n```\n")
    return "\n".join(parts)


def settings_page() -> str:
    """Return docs/reference/settings.md."""
    flags = {
        name
        for parameter in typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
        for name in parameter.opts
    }
    lines = [
        _SETTINGS,
        "| in TOML | flag | variable | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, setting in Settings.model_fields.items():
        flag = f"`{flag_of(name)}`" if flag_of(name) in flags else ""
        default = _default_cell(setting.default)
        variable = ENVIRONMENT_PREFIX + name.upper()
        lines.append(f"| `{name}` | {flag} | `{variable}` | {default} | {setting.description} |")
    return "\n".join(lines) + "\n"


def _default_cell(default: object) -> str:
    if default in (None, ""):
        return "not set"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def errors_page() -> str:
    """Return docs/reference/errors.md."""
    lines = [_ERRORS, "| code | HTTP | exit | retriable | fatal |", "|---|---|---|---|---|"]
    for code in ErrorCode:
        error = HorologError(code, "")
        status, code_number = http_status(error), int(exits.exit_of(error))
        flags = " | ".join("yes" if flag else "" for flag in (error.retriable, error.fatal))
        lines.append(f"| `{code}` | {status} | {code_number} | {flags} |")
    return "\n".join(lines) + "\n"


def limits_reference() -> str:
    """Return docs/reference/limits.md."""
    return limits_page(_LIMITS.rstrip("\n"))


def remoting_reference() -> str:
    """Return docs/reference/remoting.md."""
    return remoting_page(_MADE)


def metrics_reference() -> str:
    """Return docs/reference/metrics.md."""
    return metrics_page(_MADE)


def openapi_document() -> str:
    """Return docs/reference/openapi.json: the admin API as GET /openapi.json describes it."""
    from horolog.admin.app import ENDPOINTS
    from horolog.admin.openapi import describe

    return json.dumps(describe(ENDPOINTS), indent=1, ensure_ascii=False) + "\n"


PAGES = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "horolog.toml": example,
    "errors.md": errors_page,
    "limits.md": limits_reference,
    "remoting.md": remoting_reference,
    "metrics.md": metrics_reference,
    "openapi.json": openapi_document,
}


def _exit_table() -> str:
    lines = ["| code | name | meaning |", "|---|---|---|"]
    for line in (exits.__doc__ or "").splitlines():
        if line[:1].isdigit():
            code, name, meaning = line[:6].strip(), line[6:20].strip(), line[20:].strip()
            lines.append(f"| {code} | {name} | {meaning} |")
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Yield each command's path and help text, groups before their members."""
    context = command.context_class(
        command,
        info_name=path.rpartition(" ")[2],
        parent=parent,
        terminal_width=_WIDTH,
        **command.context_settings,
    )
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield path, text
    members = getattr(command, "commands", {})
    for name in command.list_commands(context) if members else ():
        if not members[name].hidden:
            yield from _commands(members[name], f"{path} {name}", context)


if __name__ == "__main__":
    for file_name, make_page in PAGES.items():
        Path(sys.argv[1], file_name).write_text(make_page(), encoding="utf-8")
