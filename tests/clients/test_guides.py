"""The programs of the README and of the guides to clients are run, as they are printed but for the broker's address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivers import BUILD, ROOT

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]

GRPC, REMOTING = (ROOT / "docs" / "guides" / name for name in ("connect.md", "connect-4x.md"))
GO = shutil.which("go", path=f"/usr/local/go/bin:{os.environ['PATH']}") or "go"
RUN_S = 120
BODY = "order 4711 is not paid"


def program(page: Path, language: str, broker: BrokerProcess) -> str:
    """Return the page's first block of a language, with the addresses of this broker."""
    found = re.search(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    text = found[1].replace("127.0.0.1:8081", broker.grpc_endpoint)
    return text.replace("127.0.0.1:9876", broker.namesrv_address)


def output(command: list[str], home: Path, **environment: str) -> str:
    """Run a program to its end, with `home` for its logs."""
    ended = subprocess.run(
        command,
        cwd=home,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def orders() -> Iterator[BrokerProcess]:
    """A broker with the topic of the guides, and no message of another program."""
    with BrokerProcess(clock="system", flush="os") as broker:
        broker.create_topic("orders", type="delay")
        yield broker


@pytest.mark.parametrize(
    ("page", "module"),
    [(GRPC, "grpc-5.2.0"), (REMOTING, "remoting-4.9.8"), (REMOTING, "remoting-5.5.0")],
    ids=["grpc", "remoting-4.9.8", "remoting-5.5.0"],
)
def test_java(page: Path, module: str, orders: BrokerProcess, tmp_path: Path) -> None:
    source = tmp_path / "FirstMessage.java"
    source.write_text(program(page, "java", orders))
    libraries = f"{BUILD / 'java' / module / 'lib'}/*"
    command = ["java", f"-Duser.home={tmp_path}", "-cp", libraries, str(source)]
    assert BODY in output(command, tmp_path)


def test_go(orders: BrokerProcess, tmp_path: Path) -> None:
    """With the versions of the driver in tests/clients/go5."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "tests" / "clients" / "go5" / name, tmp_path)
    (tmp_path / "main.go").write_text(program(GRPC, "go", orders))
    built = tmp_path / "first"
    flags = {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    output([GO, "build", "-o", str(built), "."], tmp_path, **flags)
    assert BODY in output([str(built)], tmp_path, HOME=str(tmp_path))


@pytest.mark.parametrize(
    ("page", "environment"),
    [
        (GRPC, ROOT / ".venv-client"),
        (REMOTING, BUILD / "cpp"),
        (ROOT / "README.md", BUILD / "cpp"),
    ],
    ids=["grpc", "remoting", "readme"],
)
def test_python(page: Path, environment: Path, orders: BrokerProcess, tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(program(page, "python", orders))
    home = {"HOME": str(tmp_path), "PYTHONPATH": ""}
    assert BODY in output([str(environment / "bin" / "python"), str(script)], tmp_path, **home)
