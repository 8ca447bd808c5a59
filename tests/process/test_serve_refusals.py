"""`horolog serve` with input it cannot use.

One sentence that names the flag, an exit code, and nothing changed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

from horolog.admin.status import UnreachableError
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess, BrokerStartError, installed_command

pytestmark = pytest.mark.process


def refused(broker: BrokerProcess) -> BrokerStartError:
    """How a start failed."""
    with pytest.raises(BrokerStartError) as caught, broker:
        pass
    return caught.value


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below, the lock apart."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def written(directory: Path) -> None:
    """A data directory with one pending message, small enough to be compared."""
    with BrokerProcess(directory) as broker:
        broker.create_topic("reminders")
        broker.admin.post("/v1/messages", {"topic": "reminders", "body": "x", "in_ms": 60_000})
        assert broker.stop() == 0


def pending_after_start(directory: Path) -> int:
    """A start that goes well."""
    with BrokerProcess(directory) as broker:
        return broker.pending()


def test_a_mistyped_variable_is_named_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not refused: the environment belongs to others too."""
    monkeypatch.setenv("HOROLOG_ACESS", "access.toml")
    with BrokerProcess() as broker:
        said = "HOROLOG_ACESS is no setting, and is ignored; is HOROLOG_ACCESS meant?"
        assert said in broker.stderr()


def test_a_data_directory_in_use(horolog_broker: BrokerProcess) -> None:
    """The first broker goes on."""
    error = refused(BrokerProcess(horolog_broker.data_dir))
    assert error.exit_code == 4
    assert "--data-dir: " in error.stderr
    assert "in use" in error.stderr
    assert horolog_broker.admin.get("/healthz")["healthy"] is True


def test_a_data_directory_of_a_newer_version(tmp_path: Path) -> None:
    """Both versions are named; the directory stays as it is."""
    written(tmp_path / "data")
    meta = tmp_path / "data" / "meta"
    was = meta.read_bytes()
    meta.write_text(json.dumps({**json.loads(was), "format": 99}))
    before = contents(tmp_path / "data")
    error = refused(BrokerProcess(tmp_path / "data"))
    assert error.exit_code == 4
    assert "--data-dir: format 99; this horolog reads format 1" in error.stderr
    assert contents(tmp_path / "data") == before
    meta.write_bytes(was)
    assert pending_after_start(tmp_path / "data") == 1


def test_the_other_clock(tmp_path: Path) -> None:
    """A simulated directory is refused by the system clock."""
    written(tmp_path / "data")
    error = refused(BrokerProcess(tmp_path / "data", clock="system"))
    assert error.exit_code == 4
    assert "--clock: " in error.stderr
    assert pending_after_start(tmp_path / "data") == 1


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    """Nobody's holiday pictures become a data directory."""
    (tmp_path / "holiday.jpg").write_bytes(b"sea")
    error = refused(BrokerProcess(tmp_path))
    assert error.exit_code == 4
    assert "--data-dir: " in error.stderr
    assert "holiday.jpg" in error.stderr
    assert contents(tmp_path) == {"holiday.jpg": b"sea"}


@pytest.mark.parametrize("place", ["file", "below-a-file"])
def test_a_data_directory_that_cannot_be_one(tmp_path: Path, place: str) -> None:
    """A file, or a path below a file."""
    (tmp_path / "file").write_text("x")
    path = tmp_path / "file" if place == "file" else tmp_path / "file" / "data"
    error = refused(BrokerProcess(path))
    assert error.exit_code in (1, 4)
    assert "--data-dir" in error.stderr
    assert "Traceback" not in error.stderr


def test_a_read_only_data_directory() -> None:
    """/proc refuses new names to everybody, root included.

    No permission bit is needed to show it.
    """
    error = refused(BrokerProcess(Path("/proc/horolog-data")))
    assert error.exit_code in (1, 4)
    assert "--data-dir" in error.stderr
    assert "Traceback" not in error.stderr


@pytest.mark.parametrize("flag", ["grpc_port", "admin_port"])
def test_a_port_in_use(tmp_path: Path, flag: str) -> None:
    """The flag, the port, and the way out; no directory of 512 MiB is made."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        error = refused(BrokerProcess(tmp_path / "data", **{flag: port}))
    assert error.exit_code == 2
    name = flag.replace("_", "-")
    assert (
        f"horolog: --{name}: port {port} cannot be opened (in use); 0 takes a free one"
        in error.stderr
    )
    assert not (tmp_path / "data").exists()
    assert pending_after_start(tmp_path / "data") == 0


@pytest.mark.parametrize("made", [lambda path: path.write_text("none"), Path.mkdir])
def test_a_certificate_that_is_none(tmp_path: Path, made: Callable[[Path], object]) -> None:
    """No directory is made either."""
    made(tmp_path / "cert.pem")
    arguments = [f"--tls-cert={tmp_path / 'cert.pem'}"]
    error = refused(BrokerProcess(tmp_path / "data", arguments=arguments))
    assert error.exit_code == 2
    assert "horolog: --tls-cert: " in error.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("flags", [[], ["--no-remoting"]])
def test_a_host_that_is_not_ours(tmp_path: Path, flags: list[str]) -> None:
    """The address is to blame, not the port that is opened first."""
    error = refused(BrokerProcess(tmp_path / "data", arguments=["--host=999.1.1.1", *flags]))
    assert error.exit_code == 2
    assert "horolog: --host: '999.1.1.1' is no address of this machine" in error.stderr


def test_a_port_of_another_broker(horolog_broker: BrokerProcess, tmp_path: Path) -> None:
    """Sockets of gRPC do not share the port silently."""
    port = int(horolog_broker.grpc_endpoint.rpartition(":")[2])
    error = refused(BrokerProcess(tmp_path / "data", grpc_port=port))
    assert error.exit_code == 2
    assert "--grpc-port: " in error.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--flush", "never"], "'--flush'"),
        (["--clock", "sundial"], "'--clock'"),
        (["--grpc-port", "70000"], "--grpc-port: "),
        (["--admin-port", "-1"], "--admin-port: "),
        (["--log-level", "loud"], "--log-level: "),
        (["--broker-name", "two words"], "--broker-name: "),
        (["--colour", "red"], "--colour"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_flag_that_is_no_good(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Exit code 2; not even the directory is made."""
    ended = forked.run(
        [*installed_command(), "serve", "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert message in ended.stderr
    assert not (tmp_path / "data").exists()


def test_settings_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    """The flag wins over the variable, the variable over the file."""
    file = tmp_path / "horolog.toml"
    file.write_text('broker_name = "from-file"\nlog_level = "error"\n')
    options = {
        "arguments": ["--config", str(file)],
        "environment": {"HOROLOG_BROKER_NAME": "from-environment"},
    }
    with BrokerProcess(tmp_path / "data", **options) as broker:  # type: ignore[arg-type]
        assert broker.admin.get("/v1/broker")["broker_name"] == "from-environment"
        assert broker.stop() == 0
        assert broker.stderr() == ""


def test_a_log_in_json_has_nothing_else(tmp_path: Path) -> None:
    """From the start to the end, and when a start is refused."""
    with BrokerProcess(tmp_path / "data", arguments=["--log-format", "json"]) as broker:
        error = refused(BrokerProcess(tmp_path / "data", arguments=["--log-format", "json"]))
        assert broker.stop() == 0
        life = [json.loads(line) for line in broker.stderr().splitlines()]
    assert error.exit_code == 4
    (*_, why) = [json.loads(line) for line in error.stderr.splitlines()]
    assert (why["level"], why["message"][:12]) == ("critical", "--data-dir: ")
    messages = [event["message"] for event in life]
    assert messages[-2:] == ["stopping", "stopped"]
    ready = next(event for event in life if event["message"].startswith("ready "))
    assert ready["fields"]["epoch"] == 1
    assert ready["fields"]["pid"] == broker.pid


def test_a_damaged_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Two flipped bits below what had been promised.

    The range is named, exit code 1, and nothing is cut.
    """
    written(tmp_path / "data")
    log = tmp_path / "data" / "shard-00" / "log" / f"{0:020d}.log"
    checkpoints = tmp_path / "data" / "shard-00" / "checkpoint"
    shutil.rmtree(checkpoints)  # so that the whole log is read
    with log.open("r+b") as file:
        file.seek(70)
        flipped = bytes([file.read(1)[0] ^ 3])
        file.seek(-1, os.SEEK_CUR)
        file.write(flipped)
        file.seek(0)
        before = file.read(65_536)
    error = refused(BrokerProcess(tmp_path / "data"))
    assert error.exit_code == 1
    assert "damage" in error.stderr
    assert "Traceback" not in error.stderr
    with log.open("rb") as file:
        assert file.read(65_536) == before


def test_a_disk_without_space_for_a_log(tmp_path: Path) -> None:
    """A limit on the size of files stands for it; the next start, with space, goes well."""
    limited = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", *installed_command()]
    error = refused(BrokerProcess(tmp_path / "data", command=limited))
    assert error.exit_code == 1
    assert "File too large" in error.stderr
    assert "Traceback" not in error.stderr
    assert pending_after_start(tmp_path / "data") == 0


@pytest.mark.parametrize("files", [12, 20, 127])
def test_a_process_that_may_open_too_few_files(tmp_path: Path, files: int) -> None:
    """A sentence before anything is made; the least that is taken is enough to start, send and stop."""
    limited = ["sh", "-c", 'ulimit -n "$0"; exec "$@"', str(files), *installed_command()]
    error = refused(BrokerProcess(tmp_path / "data", command=limited))
    assert error.exit_code == 1
    assert error.stderr.splitlines()[-1] == (
        f"horolog: ulimit -n: this process may open {files} files, and a broker needs 128: raise the hard "
        "limit (ulimit -Hn, LimitNOFILE= of a unit)"
    )
    assert "Traceback" not in error.stderr
    assert not (tmp_path / "data").exists()
    limited[3] = "128"
    with BrokerProcess(tmp_path / "data", command=limited) as broker:
        broker.create_topic("reminders")
        broker.admin.post("/v1/messages", {"topic": "reminders", "body": "x", "in_ms": 60_000})
        assert broker.stop() == 0


def test_a_disk_that_fails_ends_the_broker_and_loses_nothing(tmp_path: Path) -> None:
    """The send that could not be written is not acknowledged; exit code 1; all before it is there."""
    message = {"topic": "reminders", "body": "x" * 300_000, "in_ms": 60_000}
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("reminders")
        for _ in range(5):  # the log is now longer than a file may be from here on
            broker.admin.post("/v1/messages", message)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        with pytest.raises((HorologError, UnreachableError)):
            broker.admin.post("/v1/messages", message)
        assert broker.wait() == 1
        assert "the broker cannot go on" in broker.stderr()
        broker.restart()
        assert broker.pending() == 5
