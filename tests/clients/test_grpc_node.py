"""The scenarios of 5.x clients with the official client of Node.js."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from drivers import Driver, node
from grpc_scenarios import GrpcScenarios
from transaction_scenarios import GrpcTransactions

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with node(tmp_path_factory.mktemp("client")) as started:
        yield started


class TestNode(GrpcScenarios, GrpcTransactions):
    """Plaintext, as it does by default."""
