"""The guide on access, as it is typed: its file, its commands, and what the log says."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import forked
import pytest
from tests.process.test_docs_commands import blocks, commands

from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

PAGE = "guides/access.md"


def run(broker: BrokerProcess, words: list[str], **environment: str) -> tuple[int, str, str]:
    ended = forked.run(
        [*installed_command(), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOROLOG_ADMIN": broker.admin_url, **environment},
    )
    return ended.returncode, ended.stdout, ended.stderr


def logged(broker: BrokerProcess, said: str) -> str:
    """The log, once it has this."""
    end = time.monotonic() + 20
    while said not in (text := broker.stderr()):
        assert time.monotonic() < end, text
        os.sched_yield()
    return text


def test_the_guide_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(blocks(PAGE, "toml")[0])
    path.chmod(0o600)
    export = re.search(r"export (\S+)=(\S+) (\S+)=(\S+)", blocks(PAGE, "sh")[0])
    assert export is not None
    keys = {export[1]: export[2], export[3]: export[4]}
    with BrokerProcess(arguments=[f"--access={path}"]) as broker:
        for words in commands(PAGE):
            code, _, said = run(broker, words, **keys)
            assert code == 0, (words, said)
        code, _, said = run(broker, ["pending"], **(keys | {"HOROLOG_SECRET_KEY": "mistyped"}))
        assert code == 4
        assert said in blocks(PAGE, "console")[1]
        with pytest.raises(HorologError, match="authorization: missing"):
            broker.now_ms()
        assert "access control is on identities=2" in broker.stderr()
        assert keys["HOROLOG_SECRET_KEY"] not in broker.stderr()
        # A changed file counts from SIGHUP on; a bad one is named, and changes nothing.
        good = path.read_text()
        path.write_text(good.replace("admin = true", 'admin = "yes"'))
        os.kill(broker.pid, signal.SIGHUP)
        logged(broker, "identities.operator.admin: true or false is needed; what is in use stays")
        assert run(broker, ["pending"], **keys)[0] == 0
        path.write_text(good.replace("admin = true", "admin = false"))
        path.chmod(0o644)
        os.kill(broker.pid, signal.SIGHUP)
        logged(broker, "access file read again")
        assert "can be read by other users" in broker.stderr()
        code, _, said = run(broker, ["pending"], **keys)
        assert code == 4
        assert "it is not an administrator" in said


def listening(pid: int) -> dict[int, str]:
    """Ports on which a process listens, and their addresses."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    found = {}
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[at] for at in (1, 3, 9))
            if state == "0A" and inode in inodes:
                address, _, port = local.partition(":")
                found[int(port, 16)] = address
    return found


@pytest.mark.parametrize(
    ("arguments", "address"), [([], "0100007F"), (["--host=0.0.0.0"], "00000000")]
)
def test_nothing_listens_beyond_this_machine_unless_it_is_wanted(
    arguments: list[str], address: str
) -> None:
    """The admin port never does."""
    with BrokerProcess(arguments=arguments) as broker:
        ports = {name: int(broker.ready[name]) for name in broker.ready if name.endswith("-port")}
        assert len(ports) == 4
        wanted = dict.fromkeys(ports.values(), address) | {ports["admin-port"]: "0100007F"}
        assert listening(broker.pid) == wanted


def test_without_a_file_the_log_says_so() -> None:
    with BrokerProcess() as broker:
        assert "access control is off: everybody on this machine" in broker.stderr()
        assert " WARNING" not in broker.stderr()
    with BrokerProcess(arguments=["--host=0.0.0.0"]) as broker:
        assert "access control is off and --host is 0.0.0.0" in broker.stderr()
