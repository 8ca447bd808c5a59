"""Names of topics and groups for shell completion, from the broker that the command would use.

Completion must not make the user wait: a broker that does not answer within `TIMEOUT_S` completes
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer import _completion_shared
from typer.models import ParameterInfo

# As `admin.client.DEFAULT_URL`, which no help page may import: it loads http.client.
ADMIN_URL = "http://127.0.0.1:8090"
TIMEOUT_S = 0.5
_NAMES_MAX = 1_000
# Parameters of any command that name a topic or a group; modules of the commands whose NAME does.
_ANYWHERE = {"topic": "topics", "group": "groups"}
_ABOUT = {"horolog.cli.topic": "topics", "horolog.cli.group": "groups"}
_NEW = ("create",)  # commands that take the name of something new


_ZSH_REGISTERS = "compdef %(complete_func)s %(prog_name)s"
_ZSH_OFFERS = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
fi"""


def offer_at_first_tab() -> None:
    """Make zsh offer words already at the first tab, which otherwise only loads typer's script."""
    scripts = getattr(_completion_shared, "_completion_scripts", {})
    script = scripts.get("zsh", "")
    if script.rstrip().endswith(_ZSH_REGISTERS):
        scripts["zsh"] = f"{script.rstrip()}\n{_ZSH_OFFERS}\n"


def complete_names(command: Callable[..., object], name: str) -> None:
    """Let the shell complete the parameters of a command that name topics and groups."""
    hints = get_type_hints(command, include_extras=True)
    for parameter, hint in hints.items():
        kind = _kind(command, name, parameter)
        if not kind or get_origin(hint) is not Annotated:
            continue
        for declared in hint.__metadata__:
            if isinstance(declared, ParameterInfo):
                declared.autocompletion = _TOPICS if kind == "topics" else _GROUPS
    command.__annotations__ = (
        hints  # for typer: the declarations changed above, not evaluated again
    )


def _kind(command: Callable[..., object], name: str, parameter: str) -> str:
    if parameter == "name" and name not in _NEW:
        return _ABOUT.get(command.__module__, "")
    return _ANYWHERE.get(parameter, "")


def names(kind: str, url: str, incomplete: str) -> list[str]:
    """Return sorted names that begin with `incomplete`.

    Internal topics (%RETRY%…) are offered only if % is typed.
    """
    from horolog.admin.client import AdminClient
    from horolog.admin.status import UnreachableError
    from horolog.errors import HorologError

    listed: list[dict[str, Any]] = []
    with suppress(HorologError, UnreachableError):
        page = {"limit": _NAMES_MAX, "after": predecessor(incomplete)}
        listed = AdminClient(url, timeout_s=TIMEOUT_S).get(f"/v1/{kind}", page)[kind]
    found = [str(row["name" if kind == "topics" else "group"]) for row in listed]
    return [
        each
        for each in found
        if each.startswith(incomplete) and each.startswith("%") == incomplete.startswith("%")
    ]


def predecessor(incomplete: str) -> str:
    """Return the text that sorts directly before all names with this beginning."""
    if not incomplete:
        return ""
    if incomplete[-1] <= "-":
        return predecessor(incomplete[:-1])  # no letter of a name sorts before this one
    return f"{incomplete[:-1]}{chr(ord(incomplete[-1]) - 1)}|"


def _of(kind: str) -> Callable[[typer.Context, str], list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        url = context.params.get("admin") or os.environ.get("HOROLOG_ADMIN") or ADMIN_URL
        return names(kind, str(url), incomplete)

    return complete


_TOPICS, _GROUPS = _of("topics"), _of("groups")
