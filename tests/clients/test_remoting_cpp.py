"""The scenarios of 4.x clients with the C++ core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance
from drivers import Driver, cpp
from official import Remoting
from remoting_retry_scenarios import RetryScenarios
from remoting_scenarios import RemotingScenarios

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """One a test: all producers of a process share one connection to one name server."""
    with cpp(tmp_path) as started:
        yield started


@pytest.fixture
def other_driver(tmp_path: Path) -> Iterator[Driver]:
    with cpp(tmp_path / "other") as started:
        yield started


class TestCpp(Conformance, RemotingScenarios, RetryScenarios):
    """The wrapper of PyPI."""

    client = "cpp"
    kind = Remoting
