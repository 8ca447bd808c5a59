"""The command line without a broker: help, usage errors, exit codes, and how quick it starts."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer.main
from typer.testing import CliRunner

from horolog import __version__
from horolog.admin.client import DEFAULT_URL, AdminClient
from horolog.admin.status import Silence, UnreachableError
from horolog.cli.completion import ADMIN_URL
from horolog.cli.exits import Exit, exit_of
from horolog.cli.main import app, run
from horolog.cli.options import ADMIN_DEFAULT, unreachable
from horolog.cli.pipeline_load import in_flags
from horolog.errors import ErrorCode, HorologError

COMMANDS = [
    [],
    ["serve"],
    ["topic"],
    ["topic", "create"],
    ["topic", "delete"],
    ["topic", "list"],
    ["topic", "set"],
    ["topic", "describe"],
    ["schedule"],
    ["schedule", "create"],
    ["schedule", "change"],
    ["schedule", "list"],
    ["schedule", "show"],
    ["schedule", "next"],
    ["schedule", "pause"],
    ["schedule", "resume"],
    ["schedule", "remove"],
    ["send"],
    ["receive"],
    ["pending"],
    ["message"],
    ["message", "find"],
    ["message", "show"],
    ["message", "search"],
    ["recall"],
    ["reschedule"],
    ["hand-over"],
    ["inspect"],
    ["broker"],
    ["health"],
    ["top"],
    ["doctor"],
    ["backup"],
    ["restore"],
    ["verify"],
    ["salvage"],
    ["pipeline"],
    ["pipeline", "load"],
    ["pipeline", "audit"],
    ["pipeline", "forecast"],
    ["pipeline", "rebuild"],
    ["pipeline", "offload"],
    ["pipeline", "promote"],
    ["group"],
    ["group", "set"],
    ["group", "list"],
    ["group", "describe"],
    ["group", "clients"],
    ["group", "reset"],
    ["group", "delete"],
    ["dlq"],
    ["dlq", "list"],
    ["dlq", "redrive"],
    ["config"],
    ["config", "check"],
    ["config", "example"],
    ["monitor"],
    ["monitor", "rules"],
    ["monitor", "dashboard"],
    ["clock"],
    ["clock", "show"],
    ["clock", "advance"],
]


def walk(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All paths of commands, but for names of before."""
    yield path
    for name, member in getattr(command, "commands", {}).items():
        if not member.hidden:
            yield from walk(member, (*path, name))


def test_there_are_no_other_commands() -> None:
    """So that the list above stays whole."""
    found = sorted(walk(typer.main.get_command(app)))
    assert found == sorted(tuple(command) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_exit_codes_and_shows_an_example(command: list[str]) -> None:
    """Groups list their commands instead of an example."""
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    assert "Exit codes: 0 ok" in shown
    if command not in (
        ["topic"],
        ["monitor"],
        ["group"],
        ["message"],
        ["dlq"],
        ["schedule"],
        ["config"],
        ["clock"],
        ["pipeline"],
    ):
        assert "  horolog " + " ".join(command) in shown


@pytest.mark.parametrize(
    "flag",
    [
        "--data-dir",
        "--grpc-port",
        "--remoting",
        "--namesrv-port",
        "--broker-port",
        "--admin-port",
        "--flush",
        "--clock",
        "--host",
        "--broker-name",
        "--auto-create-topics",
        "--no-auto-create-topics",
        "--log-level",
        "--log-format",
        "--config",
    ],
)
def test_flags_of_serve(flag: str) -> None:
    """Tools outside use these words."""
    assert flag in CliRunner().invoke(app, ["serve", "--help"]).output


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """What --version prints."""
    assert run(["--version"]) == Exit.OK
    assert capsys.readouterr().out == f"horolog {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["serve", "--flush", "never"],
            "'--flush': 'never' is not one of 'sync', 'interval', 'os'",
        ),
        (["serve", "--clock", "sundial"], "'--clock': 'sundial' is not one of"),
        (["serve", "--grpc-port", "eighty"], "'--grpc-port': "),
        (["serve", "--grpc-port", "70000"], "--grpc-port: 70000 is refused"),
        (["serve", "--log-level", "loud"], "--log-level: 'loud' is refused"),
        (["serve", "--config", "/nowhere.toml"], "--config: cannot read /nowhere.toml"),
        (["serve", "--colour", "red"], "No such option: --colour"),
        (["topic", "create", "t", "--type", "round"], "'--type': 'round' is not one of 'normal'"),
        (["topic", "create"], "Missing argument 'NAME'"),
        (["topic", "create", "t", "--late-after", "5m"], "--late-after: goes with --late only"),
        (["topic", "set", "t"], "--queues: give one or more of --queues, --perm, --late, "),
        (["topic", "set", "t", "--late-after", "5m"], "--late-after: goes with --late only"),
        (
            ["group", "reset", "g", "--topic", "t"],
            "--to: give either --to, or --queue and --offset",
        ),
        (["send", "t", "x", "--in", "90"], "--in: '90' is not a duration"),
        (
            ["send", "t", "x", "--at", "2026-03-08T10:00"],
            "--at: '2026-03-08T10:00' has no time zone",
        ),
        (["send", "t", "x", "--in", "9s", "--at", "2026-03-08T10:00Z"], "give either --at or --in"),
        (["send", "t", "x", "--property", "red"], "--property: 'red' is not NAME=VALUE"),
        (["receive", "t"], "Missing option '--group'"),
        (["receive", "t", "--group", "g", "--wait", "soon"], "--wait: 'soon' is not a duration"),
        (["pending", "--from", "2026-03-08T10:00Z"], "only with --list"),
        (["pending", "--by", "year"], "'--by': 'year' is not one of 'day', 'hour'"),
        (["message", "find", "--topic", "t"], "--id: give either --id or --key"),
        (["recall"], "HANDLE, or --topic: is needed"),
        (["recall", "x", "--id", "m"], "--id: does not go with a HANDLE"),
        (["recall", "--topic", "t"], "--id, --key or --from: is needed"),
        (["hand-over", "--topic", "t"], "--id, or --from: is needed"),
        (["recall", "--topic", "t", "--id", "m"], "--due: is needed"),
        (["recall", "--topic", "t", "--id", "m", "--due", "noon"], "--due: 'noon' is not a time"),
        (["recall", "--topic", "t", "--from", "2026-03-08T10:00Z"], "--to: is needed"),
        (["recall", "--key", "k"], "--topic: is needed"),
        (["recall", "x", "--key", "k"], "HANDLE: does not go with --key"),
        (["recall", "--topic", "t", "--key", "k", "--dry-run"], "--dry-run: does not go with"),
        (["recall", "x", "--tag", "t"], "--tag: does not go with --due, --id"),
        (["reschedule", "x"], "--to: is needed"),
        (["reschedule", "x", "--by", "1h"], "--by: does not go with a HANDLE"),
        (
            [
                "reschedule",
                "--topic",
                "t",
                "--from",
                "2026-03-08T10:00Z",
                "--before",
                "2026-03-09T10:00Z",
            ],
            "--to: give either",
        ),
        (
            [
                "reschedule",
                "--topic",
                "t",
                "--from",
                "2026-03-08T10:00Z",
                "--before",
                "2026-03-09T10:00Z",
                "--by",
                "1",
            ],
            "--by: '1' is not a duration",
        ),
        (["hand-over"], "HANDLE, or --topic: is needed"),
        (["hand-over", "x", "--tag", "t"], "--tag: does not go with a HANDLE"),
        (["hand-over", "--topic", "t", "--from", "2026-03-08T10:00Z"], "--to: is needed"),
        (["reschedule", "--to", "2h"], "HANDLE, or --topic: is needed"),
        (["reschedule", "x", "--due", "1", "--to", "2h"], "--due: does not go with a HANDLE"),
        (["reschedule", "x", "--to", "2"], "--to: '2' is not a time"),
        (["reschedule", "x", "--to", "2 fortnights"], "--to: '2 fortnights' is not a duration"),
        (["send", "t", "x", "--in", ""], "--in: is empty"),
        (["send", "t", "x", "--at="], "--at: is empty"),
        (["send", "t", "x", "--key", "a", "--key", ""], "--key: is empty"),
        (["pending", "--topic", ""], "--topic: is empty"),
        (["serve", "--data-dir", ""], "--data-dir: is empty"),
        (["serve", "--tls-cert="], "--tls-cert: is empty"),
        (["restore", "x", "--data-dir", ""], "--data-dir: is empty"),
        (["backup", ""], "DIR: is empty"),
        (["topic", "describe", ""], "NAME: is empty"),
        (["group", "delete", ""], "NAME: is empty"),
        (["group", "clients", ""], "NAME: is empty; leave it out instead"),
        (["schedule", "remove", ""], "NAME: is empty"),
        (["dlq", "redrive", "", "--all"], "GROUP: is empty"),
        (["dlq", "list", ""], "GROUP: is empty; leave it out instead"),
        (["message", "show", ""], "ID: is empty"),
        (["recall", "", "--topic", "t", "--key", "k"], "HANDLE: is empty; leave it out instead"),
        (["schedule", "show", "standup/next"], "NAME: schedule 'standup/next' has characters"),
        (["schedule", "remove", "a/b"], "NAME: schedule 'a/b' has characters"),
        (
            ["recall", "--topic", "t", "--from", "0", "--to", "9", "--tag", "", "--yes"],
            "--tag: is empty",
        ),
        (["pending", "--limit", "5"], "--limit: only with --list"),
        (["topic", "create", "t", "--late", "drop"], "--late-after: is needed with --late drop"),
        (["topic", "set", "t", "--late", "dead-letter"], "--late-after: is needed with --late dea"),
        (["clock", "advance", "30"], "DURATION: '30' is not a duration"),
        (["topic", "list", "--admin", "ftp://x"], "--admin: 'ftp://x' is not a URL"),
        (["topic", "list", "--admin", "http://x y:1"], "--admin: 'http://x y:1' is not a URL"),
        (["topic", "list", "--admin", "http://[::1:1"], "--admin: 'http://[::1:1' is not a URL"),
        (["topic", "list", "--admin", "http://a..b:1"], "--admin: 'http://a..b:1' is not a URL"),
        (["topic", "list", "--admin", "http://x:0"], "--admin: 'http://x:0' is not a URL"),
        (["topic", "list", "--admin", "http://x:99999"], "--admin: 'http://x:99999' is not a URL"),
        (["topic", "list", "--admin", "http://u:p@x y:1"], "--admin: 'x y:1' is not a URL"),
        (["fly"], "No such command 'fly'"),
        (["send", "t", "a\udcff"], "BODY: is not UTF-8 text"),
        (["send", "t", "x", "--key", "a", "--key", "\udcff"], "--key: is not UTF-8 text"),
        (["backup", "/tmp/\udcff"], "DIR: '/tmp/\\udcff' is not UTF-8 text"),
        (["schedule", "create", "s", "t", "x", "--every", "0s"], "--every: '0s' is no time at all"),
    ],
)
def test_a_usage_error_is_one_sentence_that_names_the_flag(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, nothing on stdout, one line on stderr."""
    assert run(arguments) == Exit.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("horolog: ")
    assert shown.err.count("\n") == 1
    assert message.lower() in shown.err.lower()


@pytest.mark.parametrize(
    "command", [["send", "t"], ["schedule", "create", "s", "t"], ["schedule", "change", "s", "t"]]
)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "BODY: empty; at least 1 byte is needed"),
        (b"x" * 28_000_000, "BODY: 28000000 bytes; at most 4194304 are allowed"),
    ],
    ids=["empty", "large"],
)
def test_a_body_that_no_broker_takes(
    command: list[str], body: bytes, message: str, monkeypatch, capsys
) -> None:
    """A broker would hang up on the large one in the middle: it is refused before anything is asked."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    assert run([*command, "-", "--admin", "http://127.0.0.1:9"]) == Exit.REFUSED
    assert capsys.readouterr().err == f"horolog: {message}\n"


def test_a_load_names_flags_and_not_options_of_spark() -> None:
    """Also within the sentence."""
    said = "column 'at': is bigint; say what it counts since 1970 with deliverAtUnit (ms, s, us)"
    with pytest.raises(HorologError) as caught, in_flags():
        raise HorologError(ErrorCode.BAD_REQUEST, said, field="deliverAtUnit")
    assert str(caught.value).startswith("--deliver-at-unit: column 'at': is bigint; ")
    assert "with --deliver-at-unit (ms" in str(caught.value)
    with pytest.raises(HorologError, match=r"such rows \(--rejects\) to load"), in_flags():
        raise HorologError(
            ErrorCode.BAD_REQUEST, "name a directory for such rows (rejects) to load"
        )
    with pytest.raises(HorologError, match=r"\(a longer --overdue-max takes it\)"), in_flags():
        raise HorologError(ErrorCode.BAD_REQUEST, "is refused (a longer overdueMax takes it)")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["topic", "describe", "orders/groups/g"], "NAME: topic 'orders/groups/g'", Exit.REFUSED),
        (["topic", "describe", "o/queues/0/messages"], "NAME: topic 'o/queues/0", Exit.REFUSED),
        (["topic", "delete", "orders/groups/g"], "NAME: topic 'orders/groups/g'", Exit.REFUSED),
        (["topic", "set", "a/b", "--queues", "2"], "NAME: topic 'a/b'", Exit.REFUSED),
        (["group", "describe", "g/dead-letters"], "NAME: consumer group 'g/d", Exit.REFUSED),
        (["group", "delete", "a/b"], "NAME: consumer group 'a/b'", Exit.REFUSED),
        (["dlq", "list", "a/b"], "GROUP: consumer group 'a/b'", Exit.REFUSED),
        (["dlq", "redrive", "a/b", "--all"], "GROUP: consumer group 'a/b'", Exit.REFUSED),
        (["message", "show", "search"], "ID: no message with id 'search'", Exit.NOT_FOUND),
        (["message", "show", "find"], "ID: no message with id 'find'", Exit.NOT_FOUND),
        (["message", "show", "a/b"], "ID: no message with id 'a/b'", Exit.NOT_FOUND),
    ],
)
def test_a_name_that_would_be_another_path(
    arguments: list[str], message: str, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before anything is asked: no broker runs here."""
    assert run([*arguments, "--admin", "http://127.0.0.1:9"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith(f"horolog: {message}")
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["pending"],
        ["clock", "show"],
        ["send", "t", "x"],
        ["recall", "x"],
        ["reschedule", "x", "--to", "2h"],
        ["message", "find", "--topic", "t", "--key", "k"],
        ["message", "show", "m", "--topic", "t"],
        ["message", "search"],
        ["hand-over", "x"],
    ],
    ids=" ".join,
)
def test_nobody_answers(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 5 and what to do about it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert run([*arguments, "--admin", url]) == Exit.UNREACHABLE
    shown = capsys.readouterr().err
    assert f"no broker answers at {url}" in shown
    assert "horolog serve" in shown


def test_silence_is_not_reported_as_absence() -> None:
    """A broker that hangs takes connections all the same."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnreachableError) as failed:
            AdminClient(url, timeout_s=0.05).get("/healthz")
    assert failed.value.silence is Silence.HANGS
    assert "overloaded, or its process is stopped" in unreachable(failed.value)
    assert "--admin" not in unreachable(failed.value), "it is the right one"


def test_what_to_do_about_silence_names_the_flag() -> None:
    """And only where there is one: the text of the error is shown by others too."""
    error = UnreachableError("http://h:1", "Connection refused")
    error.add_note("Some of it may be done")
    assert str(error) == "no broker answers at http://h:1 (Connection refused)"
    assert unreachable(error) == (
        f"{error}; start one with `horolog serve`, or name another with --admin URL."
        " Some of it may be done"
    )
    stranger = UnreachableError("http://h:1", "HTTP 200, hello", Silence.STRANGER)
    assert unreachable(stranger) == f"{stranger}; name another with --admin URL"


@pytest.mark.parametrize("arguments", [[], ["topic"], ["clock"]])
def test_without_a_command_there_is_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 all the same."""
    assert run(arguments) == Exit.USAGE
    assert capsys.readouterr().err.startswith("Usage: ")


def test_every_error_has_an_exit_code() -> None:
    """And none of them is success or "unreachable"."""
    for code in ErrorCode:
        assert exit_of(HorologError(code, "why")) not in (Exit.OK, Exit.UNREACHABLE)


def test_the_command_line_and_the_client_have_the_same_default_url() -> None:
    """It stands in both, since a command that only prints its help must not load the client."""
    assert ADMIN_DEFAULT == ADMIN_URL == DEFAULT_URL


def test_help_imports_nothing_large() -> None:
    """`import horolog` and `horolog --help` load none of the libraries a broker needs."""
    program = (
        "import sys\n"
        "import horolog\n"
        "from horolog.cli.main import run\n"
        "run(['--help'])\n"
        "large = {'grpc', 'numpy', 'pydantic', 'starlette', 'uvicorn', 'uvloop', 'asyncio',\n"
        "         'orjson', 'google.protobuf', 'http.client'}\n"
        "print(sorted(large & set(sys.modules)), file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stderr == "[]\n"
