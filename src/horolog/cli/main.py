"""The `horolog` command: its commands, and how an error becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from horolog import __version__
from horolog.cli import clock, inspect, pending, recall, receive, send, serve, topic
from horolog.cli.exits import EXIT_HELP, Exit, exit_of
from horolog.cli.options import register
from horolog.errors import HorologError

_HELP = """A message broker for messages that must arrive later.

\b
Examples:
  horolog serve --data-dir ./horolog-data
  horolog topic create reminders --type delay
  horolog send reminders "stand up" --in 90s
  horolog pending
  horolog receive reminders --group me --wait 2m --ack
"""


app = typer.Typer(
    name="horolog",
    help=_HELP,
    epilog=EXIT_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
register(app, "serve", serve.serve)
app.add_typer(topic.app, name="topic")
register(app, "send", send.send)
register(app, "receive", receive.receive)
register(app, "pending", pending.pending)
register(app, "recall", recall.recall)
register(app, "inspect", inspect.inspect)
app.add_typer(clock.app, name="clock")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"horolog {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options before the command; the help text is `_HELP`."""
    del version


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; errors are one sentence on stderr."""
    try:
        code = app(args=arguments, standalone_mode=False)
    except typer.Exit as ended:
        return ended.exit_code
    except HorologError as error:
        return _complain(error.message, exit_of(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read us (head, less) has seen enough; the interpreter must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        return _other(error)
    return code if isinstance(code, int) else Exit.OK


def _other(error: Exception) -> int:
    from horolog.admin.client import UnreachableError

    if isinstance(error, UnreachableError):
        return _complain(str(error), Exit.UNREACHABLE)
    shown = getattr(error, "format_message", None)  # typer's own usage errors
    if shown is not None:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context is not None else ""
        sentence = shown().rstrip(".").replace("Value error, ", "")
        return _complain(sentence + hint, Exit.USAGE)
    raise error


def _complain(sentence: str, code: int) -> int:
    print(f"horolog: {sentence}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the `horolog` script."""
    sys.exit(run())
