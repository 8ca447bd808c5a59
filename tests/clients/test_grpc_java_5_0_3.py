"""The scenarios of 5.x clients with the official client of Java 5.0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from drivers import Driver, java_grpc
from grpc_scenarios import GrpcScenarios
from transaction_scenarios import GrpcTransactions

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_grpc("5.0.3", tmp_path_factory.mktemp("client")) as started:
        yield started


class TestJava503(GrpcScenarios, GrpcTransactions):
    """It speaks TLS only, and has no recall."""

    tls = True
    can_recall = False
