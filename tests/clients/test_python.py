"""The suite with the official client of Python; make test runs it, as the client needs nothing but Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance
from drivers import Driver, python
from official import Grpc

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def driver(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)}
    with python(tmp_path_factory.mktemp("client"), **roots) as started:
        yield started


@pytest.fixture
def other_driver(tmp_path: Path) -> Iterator[Driver]:
    with python(tmp_path) as started:
        yield started


class Seconds(Grpc):
    """Its due times are whole seconds."""

    due_unit_ms = 1_000


class TestPython(Conformance):
    """Version 5.1.2."""

    client = "python"
    kind = Seconds
