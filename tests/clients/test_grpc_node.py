"""The scenarios of 5.x clients with the official client of Node.js."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance
from drivers import Driver, node
from grpc_scenarios import GrpcScenarios

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)}
    with node(tmp_path_factory.mktemp("client"), **roots) as started:
        yield started


@pytest.fixture
def other_driver(tmp_path: Path) -> Iterator[Driver]:
    with node(tmp_path) as started:
        yield started


class TestNode(Conformance, GrpcScenarios):
    """Plaintext, as it does by default."""

    client = "node"
