"""What the command line says when what it talks or writes to is not what it should be."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from horolog.admin.client import AdminClient
from horolog.cli.checkup.running import check_running
from horolog.cli.exits import Exit
from horolog.cli.main import run

RECEIVED = {
    "message_id": "A1",
    "queue_id": 0,
    "queue_offset": 7,
    "deliver_at": None,
    "tag": None,
    "attempt": 1,
    "body": "stand up",
    "receipt_handle": "r",
}
NOBODY = "http://127.0.0.1:1"
WINDOW = ["--topic=t", "--from=2026-03-08T00:00Z", "--to=2026-03-09T00:00Z", f"--admin={NOBODY}"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"\x00\xff SMTP ready\r\n", "·ÿ SMTP ready"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "HTTP 200, <html>"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "HTTP 200, []"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{'error': null}", "HTTP 200, "),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 5\r\n\r\n\x1b[2J!", "HTTP 500, ·[2J!"),
    ],
)
def test_somebody_else_answers(said: bytes, shown: str, capsys) -> None:
    """Another server at the port is told as that, on one line, and not as a broker that is down."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(65_536)
                connection.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        assert run(["pending", "--admin", url]) == Exit.UNREACHABLE
        answering.join()
    sentence = capsys.readouterr().err
    assert sentence.startswith(f"horolog: what answers at {url} is not a broker's admin port (")
    assert shown in sentence
    assert sentence.count("\n") == 1
    assert sentence[:-1].isprintable()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}"])
def test_an_answer_that_is_broken_off(said: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """As by a broker that is killed meanwhile: no answer, and not a stranger's."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert run(["pending", "--admin", url]) == Exit.UNREACHABLE
        answering.join()
    assert capsys.readouterr().err.startswith(f"horolog: no broker answers at {url} (")


@pytest.mark.parametrize("command", ["recall", "hand-over"])
def test_ctrl_d_at_the_question(command: str, monkeypatch, capsys) -> None:
    """It is no answer: nothing is done, and nothing more is said."""
    ours, theirs = os.openpty()
    counted = b'{"result": {"matched": 3}}'
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        open(theirs, encoding="utf-8") as terminal,
        open(ours, "wb", buffering=0) as keyboard,
    ):

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(counted)}\r\n\r\n"
                connection.sendall(head.encode() + counted)

        answering = threading.Thread(target=answer)
        answering.start()
        monkeypatch.setattr(sys, "stdin", terminal)
        keyboard.write(b"\x04")
        window = ["--from", "2026-03-08T00:00Z", "--to", "2026-03-09T00:00Z"]
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert run([command, "--topic", "t", *window, "--admin", url]) == 130
        answering.join()
    sentence = capsys.readouterr().err
    assert "3 messages of t? [y/N]:" in sentence
    assert "Traceback" not in sentence


def test_output_that_cannot_be_written() -> None:
    """A full disk is a sentence and exit code 1, not a traceback."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "horolog", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == Exit.FAILURE
    assert ended.stderr == "horolog: No space left on device\n"


@pytest.mark.parametrize(
    ("closed", "command", "code", "said"),
    [
        (
            "<&-",
            ["send", "t", "-"],
            Exit.REFUSED,
            "horolog: BODY: empty; at least 1 byte is needed",
        ),
        ("<&-", ["top", "--admin", NOBODY], Exit.UNREACHABLE, "horolog: no broker answers"),
        ("<&-", ["recall", *WINDOW], Exit.UNREACHABLE, "horolog: no broker answers"),
        ("2>&-", ["recall", *WINDOW], Exit.UNREACHABLE, ""),
        ("2>&-", ["pending", "--json", "--admin", NOBODY], Exit.UNREACHABLE, ""),
        (">&-", ["receive", "t", "--group", "g", "--ack"], Exit.USAGE, "horolog: --ack: stdout is"),
        (">&-", ["--version"], Exit.OK, ""),
    ],
)
def test_standard_files_that_are_closed(
    closed: str, command: list[str], code: Exit, said: str
) -> None:
    """As by a program that starts commands without them: no traceback, and no error on stdout."""
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "horolog", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == (1 if said else 0)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_cannot_be_printed_is_not_acknowledged(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message that a full disk did not take comes again."""
    asked: list[str] = []

    class Broker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            content = json.dumps({"result": {"messages": [RECEIVED], "refused": []}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with HTTPServer(("127.0.0.1", 0), Broker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        command = ["receive", "t", "--group", "g", "--ack", *options, "--admin", url]
        assert run(command) == Exit.OK
        assert "stand up" in capsys.readouterr().out
        assert asked == ["/v1/receive", "/v1/ack"]
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stdout", full)
            assert run(command) == Exit.FAILURE
        assert asked == ["/v1/receive", "/v1/ack", "/v1/receive"]
        server.shutdown()


def test_output_that_nobody_reads_any_more() -> None:
    """As behind `| head -1`: the command ends well, also where a script looks at every exit code."""
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        [sys.executable, "-m", "horolog", "config", "example"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (Exit.OK, "")


def _hears_interrupts() -> None:
    """A shell that starts the tests in the background has them ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_while_it_is_imported(tmp_path: Path) -> None:
    """Ctrl-C right after the start ends the process in silence; Python would print where it was."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "horolog", "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_hears_interrupts,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_the_doctor_of_somebody_else() -> None:
    """A server that is no broker does not lack an administrator's name."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>")

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (found,) = check_running(AdminClient(url))
        answering.join()
    assert found.do.startswith("name the admin port of the broker")


def test_a_backup_from_a_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run(["backup", "here"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("horolog: DIR: the current directory is gone")
