"""Hypothesis profiles, the order of tests, and the small world in which tests of the store run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from horolog.clock import SimulatedClock
from horolog.testing.broker import BrokerProcess
from horolog.testing.disk import FaultyDisk
from horolog.testing.plain_disk import PlainDisk
from horolog.testing.sim_broker import SimBroker

settings.register_profile(
    "horolog",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("horolog")

# A failure in a shared scenario says what was there and what was wanted.
pytest.register_assert_rewrite(
    *(each.stem for each in Path(__file__).with_name("support").glob("*.py"))
)

START_MS = 1_700_000_000_000

LEFT_OPEN_MAX = 32
# A broker preallocates 512 MiB of log; some tests start several, and Spark writes beside them.
FREE_BYTES_MIN = 6 << 30
LONG_ONES = ("tests/spark/", "tests/process/", "tests/sim/", "tests/model/", "examples/")


def pytest_configure() -> None:
    """Brokers are forks of a process that has imported all; see tests/support/forked.py."""
    from forked import Forked

    if not os.environ.get("HOROLOG_INSTALLED"):
        BrokerProcess._popen = Forked


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    """Brokers of this module are started by the installed script, as users start them."""
    before = BrokerProcess._popen
    BrokerProcess._popen = subprocess.Popen
    yield
    BrokerProcess._popen = before


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say at once that the disk is too full: brokers refuse sends then, and fifty tests fail for one reason."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES_MIN:
        pytest.exit(
            f"the tests need {FREE_BYTES_MIN >> 30} GiB free in {folder}, {free / (1 << 30):.1f} GiB are",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes long first, so that no worker ends long after the others."""
    rank = {place: i for i, place in enumerate(LONG_ONES)}

    def place_of(item: pytest.Item) -> int:
        found = (rank[place] for place in LONG_ONES if item.nodeid.startswith(place))
        return next(found, len(LONG_ONES))

    items.sort(key=place_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Deal the tests to the workers of `make test`; see tests/support/spread.py."""
    from spread import Spread

    return Spread(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the tests that run for a time have done in it: `record_property("figures", …)`."""
    for report in terminalreporter.getreports("passed"):
        for name, figure in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {figure}")


def open_files() -> list[str]:
    """The paths of the files that this process has open; sockets and pipes are not among them.

    py4j keeps a socket for every thread of the JVM that called into Python, until the JVM collects the thread.
    """
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the directory's own
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in found if name.startswith("/")]


@pytest.fixture(autouse=True, scope="module")
def few_files_stay_open() -> Iterator[None]:
    """A module that leaves files open fails itself, and not a later one.

    With more than 1 024 descriptors, Spark's callbacks into Python (`select` in py4j) wait for ever.
    """
    before = open_files()
    yield
    if len(open_files()) > len(before) + LEFT_OPEN_MAX:
        gc.collect()
        left = Counter(open_files()) - Counter(before)
        assert left.total() <= LEFT_OPEN_MAX, left


class World:
    """A disk, a clock and a broker on them."""

    def __init__(
        self, flush: str = "sync", segment_bytes: int = 65_536, root: Path | None = None
    ) -> None:
        self.disk = FaultyDisk(1) if root is None else PlainDisk(root)
        self.clock = SimulatedClock(START_MS)
        self.broker = SimBroker(Random(1), self.disk, self.clock, flush, segment_bytes)

    def reopen(self, *, power_cut: bool = False) -> None:
        """Crash and start again."""
        self.disk.crash(power_cut=power_cut)
        self.broker.open()


@pytest.fixture
def world() -> World:
    """An opened broker on an empty faulty disk."""
    made = World()
    made.broker.open()
    return made


@pytest.fixture(scope="session")
def filled_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of `damaged_log`, made once: nobody changes it."""
    from damaged_log import fill_directory

    made = tmp_path_factory.mktemp("filled") / "data"
    asyncio.run(asyncio.wait_for(fill_directory(made), 60))
    return made


@pytest.fixture
def data_dir(filled_directory: Path, tmp_path: Path) -> Path:
    """A copy of the directory of `damaged_log`, to damage."""
    shutil.copytree(filled_directory, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(params=["faulty", "real"])
def any_world(request, tmp_path) -> World:
    """An opened broker, once on the faulty disk and once on the real one: for tests without faults."""
    made = World(root=tmp_path if request.param == "real" else None)
    made.broker.open()
    return made


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    """The class itself, for tests that need another one."""
    return World
