"""Flags that several commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from horolog.cli.completion import ADMIN_URL, complete_names
from horolog.cli.exits import EXIT_HELP
from horolog.errors import HorologError, refused

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient
    from horolog.admin.status import UnreachableError

EPILOG = EXIT_HELP

Admin = Annotated[
    str,
    typer.Option(
        "--admin",
        envvar="HOROLOG_ADMIN",
        metavar="URL",
        help="URL of the broker's admin port.",
    ),
]
ADMIN_DEFAULT = ADMIN_URL

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

# Flags that name what a command acts on: one message, or all of a window.
Handle = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE", help="Recall handle, from `horolog send` or a RocketMQ client."
    ),
]
OfTopic = Annotated[str, typer.Option("--topic", metavar="NAME", help="Topic of the messages.")]
OfId = Annotated[
    str, typer.Option("--id", metavar="ID", help="Message id of one message; with --due.")
]
OfDue = Annotated[
    str, typer.Option("--due", metavar="TIME", help="Due time of the message of --id.")
]
DueFrom = Annotated[
    str, typer.Option("--from", metavar="TIME", help="All messages due at or after this time.")
]
DueTo = Annotated[
    str, typer.Option("--to", metavar="TIME", help="With --from: and due before this time.")
]
OfTag = Annotated[str, typer.Option("--tag", help="With --from: only messages with this tag.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --from: only count the messages.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="With --from: skip the question, which is asked on a terminal only."
    ),
]


_PLACES = frozenset({"BACKUP", "DATA_DIR", "DIR", "FILE"})  # metavars
_TEXTS = frozenset({"BODY"})  # metavars; the broker checks empty ones


class _NoEmptyTexts(typer.core.TyperCommand):
    """A command that refuses empty options and arguments, which unset shell variables produce.

    Taken as left out, `--in "$DELAY"` would send at once, and `--tag "$TAG"` would recall messages
    with other tags; taken as a path, `--data-dir "$DIR"` would be the current directory.
    """

    texts_may_be_empty = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the remaining arguments; a usage error names the empty option."""
        typed, _, _ = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            given = typed.get(parameter.name or "")
            if "" in (given, *_several(given)) and not self._may_be_empty(parameter):
                why = "is empty" if parameter.required else "is empty; leave it out instead"
                raise refused(_flag_of(parameter), why)
        left = super().parse_args(ctx, args)
        for parameter in self.params:
            _check_text(parameter, ctx.params.get(parameter.name or ""))
        return left

    def _may_be_empty(self, parameter: Any) -> bool:
        if parameter.metavar in _PLACES:
            return False
        return self.texts_may_be_empty or parameter.metavar in _TEXTS


class _EmptyTextsAllowed(_NoEmptyTexts):
    """A command whose options may be empty, with a meaning of their own; a path may not."""

    texts_may_be_empty = True


def _flag_of(parameter: Any) -> str:
    """Return the name of a parameter in the help."""
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.metavar).strip("[].")


def _several(given: object) -> Sequence[object]:
    return given if isinstance(given, list | tuple) else ()


def _check_text(parameter: Any, given: object) -> None:
    """Refuse text that is not UTF-8: no request could carry it.  Paths may be any bytes."""
    for text in (given, *_several(given)):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise refused(_flag_of(parameter), "is not UTF-8 text") from None


def register(
    app: typer.Typer,
    name: str,
    command: Callable[..., object],
    *,
    hidden: bool = False,
    empty_texts: bool = False,
) -> None:
    """Make `command` a command of `app`; its docstring is the help, its examples stay as typed.

    hidden       a former name, which still works
    empty_texts  texts may be empty, with a meaning of their own
    """
    text = inspect.cleandoc(command.__doc__ or "")
    # \b on a line of its own keeps the help formatter from re-wrapping the paragraph
    text = re.sub(r"^(Examples?:)$", "\b\n\\1", text, flags=re.MULTILINE)
    # For lists of commands: the first sentence, cut to what a narrow terminal shows.
    short = re.split(r"[:;]|\.\s|\.$| \(|, (?:and|as|by|checking)\b", text)[0] + "."
    complete_names(command, name)
    cls = _EmptyTextsAllowed if empty_texts else _NoEmptyTexts
    app.command(name, cls=cls, help=text, short_help=short, epilog=EPILOG, hidden=hidden)(command)


LONG_S = 3_600.0  # for long operations, which a broker answers when all is done


def connect(admin: str, *, timeout_s: float | None = None) -> AdminClient:
    """Return a client for that URL; imported here to keep `horolog --help` quick."""
    from horolog.admin.client import TIMEOUT_S, AdminClient

    return AdminClient(admin, timeout_s=timeout_s or TIMEOUT_S)


def unreachable(error: UnreachableError) -> str:
    """Return the sentence for a broker that does not answer, with the notes of the command."""
    return ". ".join(
        [error.advised("name another with --admin URL"), *getattr(error, "__notes__", ())]
    )


@contextmanager
def typed_as(flags: Mapping[str, str]) -> Iterator[None]:
    """Let a refusal name what the user typed; `flags`: fields of the API and the core → flags."""
    try:
        yield
    except HorologError as error:
        flag = flags.get(error.field)
        if flag is None:
            raise
        why = error.message.removeprefix(f"option {error.field!r}: ")  # the form of the Spark sink
        why = why.removeprefix(f"{error.field}: ")
        raise HorologError(error.code, f"{flag}: {why}", field=flag, limit=error.limit) from None
