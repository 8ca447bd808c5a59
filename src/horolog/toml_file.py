"""Reads the TOML files that users write: the configuration and the access file."""

from __future__ import annotations

import tomllib
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from horolog.limits import TOML_BYTES_MAX

_INTEGERS = range(-(2**63), 2**63)  # those of TOML


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file.

    Raise OSError if the file cannot be read, and ValueError, with a text that continues the name
    of the file, if it is too large or is not TOML.
    """
    with path.open("rb") as file:
        content = file.read(TOML_BYTES_MAX + 1)
    if len(content) > TOML_BYTES_MAX:
        raise ValueError(f"is too large: {TOML_BYTES_MAX} bytes are allowed")
    try:
        # Editors on Windows write a byte order mark, which TOML does not allow.
        table = tomllib.loads(content.removeprefix(BOM_UTF8).decode())
        _check_integers(table)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not TOML: {error}") from None
    return table


def _check_integers(value: object) -> None:
    """Refuse what Python's parser lets pass: Python does not even print some of these numbers."""
    if isinstance(value, int) and value not in _INTEGERS:
        raise ValueError("an integer has more than 64 bits")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check_integers(each)
