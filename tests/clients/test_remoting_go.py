"""The scenarios of 4.x clients with the official client of Go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, go_remoting
from official import Remoting
from remoting_retry_scenarios import DeadLetterScenarios
from remoting_scenarios import RemotingScenarios

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with go_remoting(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients with instance names of their own have nothing in common."""
    return driver


class TestGo(Conformance, RemotingScenarios, DeadLetterScenarios):
    """The newest release."""

    client = "go-4.x"
    kind = Remoting
