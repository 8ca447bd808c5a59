"""An example of the TOML file of `horolog serve --config`, made from the settings themselves.

Every setting is a comment with its default, so the file changes nothing before it is edited.
"""

from __future__ import annotations

import json
import textwrap
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from horolog.config import ENVIRONMENT_PREFIX, Settings
from horolog.errors import HorologError
from horolog.units import parse_duration_ms

_WIDTH = 96
_HEAD = f"""# Settings of a horolog broker: horolog serve --config FILE
#
# Every line that is commented out shows the default. A flag of `horolog serve` and a variable
# {ENVIRONMENT_PREFIX}NAME win over this file. Check it with: horolog config check FILE
"""


def example() -> str:
    """Return the whole file."""
    parts = [_HEAD]
    for name, setting in Settings.model_fields.items():
        what = f"{(setting.description or '').removesuffix('.')} ({kind_of(name, setting)})"
        lines = textwrap.wrap(what, _WIDTH, break_long_words=False, break_on_hyphens=False)
        comment = "\n".join(f"# {line}" for line in lines)
        parts.append(f"{comment}\n#{name} = {toml_value(name, setting.default)}\n")
    return "\n".join(parts)


def toml_value(name: str, value: object) -> str:
    """Return a setting as TOML text; a setting without a default gets a placeholder to fill in."""
    if value is None:
        return json.dumps(f"/etc/horolog/{name.replace('_', '-')}")
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value)


def kind_of(name: str, setting: FieldInfo) -> str:
    """Return the kind of a setting's value with unit and range: "bytes, 1048576 to 1073741824"."""
    kind, optional = _plain(setting.annotation)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is Path:
        return "path; not set by default" if optional else "path"
    if kind is int:
        return _number(name, setting)
    return "duration" if _is_duration(str(setting.default)) else "text"


def _plain(annotation: Any) -> tuple[Any, bool]:
    """Return a type without its None, and whether it had one."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        return kinds[0], True
    return annotation, False


def _number(name: str, setting: FieldInfo) -> str:
    unit = "bytes" if name.endswith("_bytes") else "port" if name.endswith("_port") else "number"
    least = next((each.ge for each in setting.metadata if hasattr(each, "ge")), None)
    most = next((each.le for each in setting.metadata if hasattr(each, "le")), None)
    return f"{unit}, {least} to {most}" if most is not None else f"{unit}, {least} or more"


def _is_duration(text: str) -> bool:
    try:
        parse_duration_ms(text)
    except HorologError:
        return False
    return True
