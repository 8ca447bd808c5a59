"""The packages: a wheel that runs alone, by the commands of the systemd unit and of the container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from packaging_files import PACKAGING, ROOT, UNIT, environment, instruction, stages, unit_values
from sd_listener import Listener

from horolog import __version__
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.page, pytest.mark.process]

EXPOSURE_MAX = 20  # of systemd-analyze's 100; what is left is the network, which a broker needs
_PR_SET_MDWE, _PR_SET_NO_NEW_PRIVS = 65, 38
BUILD, IMAGE = stages()


def run(words: Sequence[str | Path], **options: object) -> str:
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the Containerfile's command, which is also that of docs/guides/install.md."""
    folder = tmp_path_factory.mktemp("wheels")
    (command,) = [line for line in instruction(BUILD, "RUN") if " pip wheel " in line]
    words = [{"python": sys.executable, "/wheels": folder}.get(w, w) for w in command.split()]
    run(words, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of an empty environment with the wheel, and with the packages of runtime.lock (`make build/runtime/ready`)."""
    (packages,) = (ROOT / "build" / "runtime").glob("lib/python3*/site-packages")
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", venv])
    python = venv / "bin" / "python"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    run([sys.executable, "-m", "pip", "--python", python, *install, wheel])
    (own,) = venv.glob("lib/python3*/site-packages")
    (own / "runtime.pth").write_text(f"{packages}\n")
    return venv / "bin"


def test_the_wheel_has_what_the_sources_have_and_nothing_else(wheel: Path) -> None:
    tracked = run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"], cwd=ROOT
    ).splitlines()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if name.split("/")[0] == f"horolog-{__version__}.dist-info"}
    assert {name.split("/", 1)[1] for name in metadata} == {
        "METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE",
    }  # fmt: skip
    assert names - metadata == {name.removeprefix("src/") for name in tracked}
    assert "horolog/py.typed" in names
    assert not [name for name in names if "test_" in name]


def test_the_command_runs_from_the_wheel(installed: Path) -> None:
    """With no source tree in sight, and no package that the lock of the runtime lacks."""
    assert run([installed / "horolog", "--version"], cwd="/") == f"horolog {__version__}\n"
    code = "import horolog, importlib.metadata as m; print(horolog.__file__, m.version('horolog'))"
    path, version = run([installed / "python", "-I", "-c", code], cwd="/").split()
    assert path.startswith(str(installed.parent))
    assert version == __version__
    code = "import importlib.util as u; print([n for n in ('pyspark_horolog', 'pytest', 'grpc', 'pyspark') if u.find_spec(n)])"
    assert run([installed / "python", "-I", "-c", code], cwd="/") == "['pyspark_horolog']\n"


class Served(BrokerProcess):
    """A broker that is started by given words, hardened."""

    def __init__(self, words: Sequence[str], variables: dict[str, str], data_dir: Path) -> None:
        super().__init__(data_dir, environment=variables)
        self._words = list(words)

    def _command_line(self) -> list[str]:
        return [sys.executable, "-c", _HARDENED, *self._words]


_HARDENED = f"""import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl({_PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0)
libc.prctl({_PR_SET_MDWE}, 1, 0, 0, 0)  # kernels before 6.3 do not know it
os.umask(0o077)
os.execv(sys.argv[1], sys.argv[1:])"""
_FREE_PORTS = "".join(f"{name}_port = 0\n" for name in ("grpc", "namesrv", "broker", "admin"))


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with Listener(f"@{tmp_path}/notify") as listening:
        yield listening


def unit_broker(installed: Path, listener: Listener, tmp_path: Path) -> Served:
    """By the unit's ExecStart, with its variables, and what systemd adds."""
    config = tmp_path / "horolog.toml"
    config.write_text(run([installed / "horolog", "config", "example"]) + _FREE_PORTS)
    config.chmod(0o640)
    (command,) = unit_values("ExecStart")
    places = {
        "/opt/horolog/bin/horolog": str(installed / "horolog"),
        "/etc/horolog/horolog.toml": str(config),
        "/var/lib/horolog": str(tmp_path / "data"),
    }
    words = command.split()
    assert set(places) <= set(words)
    variables = dict(word.split("=", 1) for word in unit_values("Environment")[0].split())
    (watchdog_s,) = unit_values("WatchdogSec")
    variables |= {"NOTIFY_SOCKET": listener.address}
    variables |= {"WATCHDOG_USEC": str(int(watchdog_s) * 1_000_000)}
    return Served([places.get(word, word) for word in words], variables, tmp_path / "data")


def container_broker(installed: Path, listener: Listener, tmp_path: Path) -> Served:
    """By the image's entry point and command, with its variables; there is no engine here that could run the image."""
    (entry,), (command,) = instruction(IMAGE, "ENTRYPOINT"), instruction(IMAGE, "CMD")
    variables = environment(IMAGE)
    variables |= {"HOROLOG_DATA_DIR": str(tmp_path / "data"), "NOTIFY_SOCKET": listener.address}
    variables |= {f"HOROLOG_{n}_PORT": "0" for n in ("GRPC", "NAMESRV", "BROKER", "ADMIN")}
    del variables["PATH"]
    words = [str(installed / json.loads(entry)[0]), *json.loads(command)]
    return Served(words, variables, tmp_path / "data")


@pytest.mark.parametrize("make", [unit_broker, container_broker])
def test_what_is_installed_serves(
    make: Callable[[Path, Listener, Path], Served],
    installed: Path,
    listener: Listener,
    tmp_path: Path,
) -> None:
    horolog = installed / "horolog"
    with make(installed, listener, tmp_path) as broker:
        assert listener.until("READY")["STATUS"] == "serving, 0 messages pending"
        admin = {**os.environ, "HOROLOG_ADMIN": broker.admin_url}
        run([horolog, "topic", "create", "orders", "--type", "delay"], env=admin)
        run([horolog, "send", "orders", "late", "--in", "1h"], env=admin)
        run([horolog, "send", "orders", "now", "--in", "10ms"], env=admin)
        words = ["receive", "orders", "--group", "g", "--wait", "20s", "--ack"]
        assert run([horolog, *words], env=admin).endswith("\nnow\n")
        assert "core   ok" in run([horolog, "health"], env=admin)
        with urllib.request.urlopen(broker.admin_url, timeout=30) as page:
            assert (page.status, page.headers.get_content_type()) == (200, "text/html")
        os.kill(broker.pid, signal.SIGHUP)
        listener.until("RELOADING")
        listener.until("READY")
        assert broker.stop() == 0
        listener.until("STOPPING")
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    done = subprocess.run([horolog, "health"], env=admin, capture_output=True, check=False)
    assert done.returncode == 5


def test_systemd_takes_the_unit_and_finds_it_hardened(installed: Path, tmp_path: Path) -> None:
    unit = tmp_path / "horolog.service"
    unit.write_text(UNIT.read_text().replace("/opt/horolog/bin", str(installed)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit],
        env={**os.environ, "SYSTEMD_PAGER": ""},
    )


def test_every_file_of_packaging_is_named_by_the_guide() -> None:
    guide = (ROOT / "docs" / "guides" / "install.md").read_text()
    for path in PACKAGING.iterdir():
        assert f"packaging/{path.name}" in guide
