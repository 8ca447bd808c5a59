"""The scenarios of 5.x clients with the official client of Java 5.0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, java_grpc
from grpc_scenarios import GrpcScenarios

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_grpc("5.0.3", tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients of a process have nothing in common."""
    return driver


class TestJava503(Conformance, GrpcScenarios):
    """It speaks TLS only."""

    client = "java-5.0.3"
    tls = True
