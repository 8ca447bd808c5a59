"""Loads node settings; errors name the flag, the variable, or the key and file that the user typed.

Sources of a setting, the first one wins: a flag of `horolog serve`, the environment variable
`HOROLOG_<NAME>`, the TOML file given with `--config`, the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from horolog.config import ENVIRONMENT_PREFIX, Settings
from horolog.errors import ErrorCode, HorologError, refused
from horolog.toml_file import read_toml

_SHOWN = 200  # characters of a refused value in its error
_ALIKE = 0.8  # of a name's letters, in order: ACESS and ACCESS; ACCESS_KEY and ACCESS are not


def flag_of(name: str) -> str:
    """Return the flag of a setting: `grpc_port` → `--grpc-port`."""
    return "--" + name.replace("_", "-")


def load(
    flags: Mapping[str, Any],
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Merge flags (None: not given), environment and file into `Settings`.

    Raises a HorologError with code CONFIG for a value that is not allowed, a port used twice, an
    unknown setting, or a file that cannot be read; its `field` is the flag, the variable, or the
    key and file that the value came from.
    """
    environment = os.environ if environment is None else environment
    merged: dict[str, Any] = {}
    came_from: dict[str, str] = {}
    for name, setting in _read_file(config_file).items():
        merged[name] = setting
        came_from[name] = f"{name} in {config_file}"
    for name in Settings.model_fields:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            merged[name] = environment[variable]
            came_from[name] = variable
    for name, setting in flags.items():
        if setting is not None:
            merged[name] = setting
            came_from[name] = flag_of(name)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise _explain(error, came_from) from None
    if (names := settings.conflicting_ports) is not None:
        typed, other = sorted(names, key=lambda name: name not in came_from)
        raise _config_error(
            came_from[typed],
            f"{merged[typed]!r} is refused: {came_from.get(other, flag_of(other))} is the same "
            "port",
        )
    return settings


def mistyped(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that set nothing but look like one that does, with that one.

    Not every unknown variable: `horolog` has others, and Kubernetes adds some of the same prefix
    (HOROLOG_SERVICE_HOST) for a service of that name.
    """
    known = [ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields]
    names = [name.removeprefix(ENVIRONMENT_PREFIX) for name in known]
    found = {}
    for variable in sorted(set(environment) - set(known)):
        if variable.startswith(ENVIRONMENT_PREFIX):
            name = variable.removeprefix(ENVIRONMENT_PREFIX)
            if close := get_close_matches(name, names, 1, _ALIKE):
                found[variable] = ENVIRONMENT_PREFIX + close[0]
    return found


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        table = read_toml(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise _config_error("--config", f"cannot read {path}: {why}") from None
    except ValueError as error:
        raise _config_error("--config", f"{path} {error}") from None
    unknown = sorted(set(table) - set(Settings.model_fields))
    if unknown:
        known = ", ".join(Settings.model_fields)
        raise _config_error(
            "--config", f"{path} has no setting {_shown(unknown[0])}; there are {known}"
        )
    for name, setting in table.items():
        # In Python true is 1: it would be accepted as a port, or as a bound of one byte.
        if isinstance(setting, bool) and Settings.model_fields[name].annotation is int:
            raise _config_error(
                f"{name} in {path}", f"{str(setting).lower()} is refused: a number is needed"
            )
    return table


def _explain(error: ValidationError, came_from: Mapping[str, str]) -> HorologError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    why = first["msg"].removeprefix("Value error, ")
    why = why[:1].lower() + why[1:]
    field = came_from.get(name, flag_of(name))
    given = first["input"]
    given = str(given) if isinstance(given, Path) else given
    return _config_error(field, f"{_shown(given)} is refused: {why}")


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _config_error(field: str, why: str) -> HorologError:
    return refused(field, why, code=ErrorCode.CONFIG)
