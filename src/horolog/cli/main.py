"""The `horolog` command: its commands, and the conversion of errors to sentences and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from horolog import __version__
from horolog.admin.status import UnreachableError
from horolog.cli import (
    backup,
    broker,
    clock,
    config,
    dlq,
    doctor,
    group,
    hand_over,
    health,
    inspect,
    message,
    monitor,
    pending,
    pipeline,
    recall,
    receive,
    reschedule,
    restore,
    salvage,
    schedule,
    send,
    serve,
    top,
    topic,
    verify,
)
from horolog.cli.completion import offer_at_first_tab
from horolog.cli.exits import EXIT_HELP, Exit, exit_of
from horolog.cli.options import register, unreachable
from horolog.errors import HorologError
from horolog.storage.descriptors import give_up_output

# typer's public BadParameter is a usage error; the others (no such option, …) share its parent.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_HELP = """A message broker for messages that must arrive later.

\b
Examples:
  horolog serve --data-dir ./horolog-data
  horolog topic create reminders --type delay
  horolog send reminders "stand up" --in 90s
  horolog pending
  horolog receive reminders --group me --wait 2m --ack
"""


class _InOrder(typer.core.TyperGroup):
    """Group that lists commands in the order a user meets them; typer would put groups last."""

    def list_commands(self, _: object) -> list[str]:
        """Return all names, in order."""
        first = ("serve", "topic")
        last = ("clock", "pipeline")
        return [*first, *(name for name in self.commands if name not in first + last), *last]


offer_at_first_tab()
app = typer.Typer(
    name="horolog",
    cls=_InOrder,
    help=_HELP,
    epilog=EXIT_HELP,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
register(app, "serve", serve.serve, empty_texts=True)
register(app, "send", send.send)
register(app, "receive", receive.receive)
register(app, "pending", pending.pending)
register(app, "recall", recall.recall)
register(app, "reschedule", reschedule.reschedule)
register(app, "hand-over", hand_over.hand_over)
register(app, "broker", broker.broker)
register(app, "top", top.top)
register(app, "health", health.health)
register(app, "doctor", doctor.doctor)
register(app, "backup", backup.backup)
register(app, "restore", restore.restore)
register(app, "verify", verify.verify)
register(app, "salvage", salvage.salvage)
register(app, "inspect", inspect.inspect)
app.add_typer(topic.app, name="topic")
app.add_typer(message.app, name="message")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(schedule.app, name="schedule")
app.add_typer(clock.app, name="clock")
app.add_typer(config.app, name="config")
app.add_typer(monitor.app, name="monitor")
app.add_typer(pipeline.app, name="pipeline")


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
    """Take the options before the command; the help text is `_HELP`."""
    del version


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are one sentence on stderr."""
    try:
        code = app(args=arguments, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a full disk is reported as any other failure
    except typer.Exit as ended:
        return ended.exit_code
    except HorologError as error:
        return _report_error(error.message, exit_of(error))
    except (KeyboardInterrupt, typer.Abort):  # Ctrl-C; at a question also Ctrl-D
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as ended:
        # typer raises SystemExit for a BrokenPipeError within a command.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _reader_gone()
    except OSError as error:
        give_up_output()
        place = f"{error.filename}: " if error.filename else ""
        return _report_error(f"{place}{error.strerror or error}", Exit.FAILURE)
    except UnreachableError as error:
        return _report_error(unreachable(error), Exit.UNREACHABLE)
    except UsageError as error:
        return _usage(error)
    return code if isinstance(code, int) else Exit.OK


def _reader_gone() -> int:
    """End well after the reader of the output (head, less) has gone."""
    give_up_output()
    return Exit.OK


def _usage(error: Any) -> int:
    """Report a wrong flag or argument in typer's words; without a command, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return Exit.USAGE
    hint = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
    sentence = error.format_message().rstrip(".").replace("Value error, ", "")
    return _report_error(sentence + hint, Exit.USAGE)


def _report_error(sentence: str, code: int) -> int:
    print(f"horolog: {sentence}", file=sys.stderr)
    return code


def _open_standard_files() -> None:
    """Make sure that descriptors 0, 1 and 2 are open, whoever started the process.

    Otherwise the next file or socket gets that descriptor: a log segment would receive what an
    abort prints, and uvloop ends the process when it closes a socket of such a descriptor.

    Python's stdin and stderr are made for them too: commands ask both whether they are terminals,
    and print() to a missing stderr writes to stdout.  A missing stdout stays missing: `receive`
    must not acknowledge what nobody can read.
    """
    for standard in range(3):
        try:
            os.fstat(standard)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def main() -> None:
    """Entry point of the `horolog` script."""
    _open_standard_files()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the locale cannot write must not end the command.
        sys.stdout.reconfigure(errors="replace")
    sys.exit(run())
