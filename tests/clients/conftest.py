"""Brokers for the tests of official clients, three a module at most, and the behaviours of a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from access_files import access_file
from conformance_table import runs_of

from horolog.server.tls import self_signed
from horolog.testing.broker import BrokerProcess

ACCESS = """
[identities.app]
secret = "secret-1"
topics = { "suite-*" = "PUB|SUB", "%RETRY%*" = "DENY" }
groups = { "group-*" = "SUB" }

[identities.operator]
secret = "secret-2"
token = "of-the-operator"
admin = true
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A client's behaviours; what it is excused from stands in the table, with the reason."""
    if "behaviour" in metafunc.fixturenames:
        names = [name for name in runs_of(metafunc.cls.client) if name != "credentials"]
        metafunc.parametrize("behaviour", names)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, beside its key; clients that look at it are told to trust it."""
    path = tmp_path_factory.mktemp("tls") / "broker.crt"
    chain, key = self_signed("127.0.0.1")
    path.write_bytes(chain)
    path.with_suffix(".key").write_bytes(key)
    return path


@pytest.fixture(scope="module")
def still(certificate: Path) -> Iterator[BrokerProcess]:
    """A broker whose clock stands still unless a test moves it."""
    files = [f"--tls-cert={certificate}", f"--tls-key={certificate.with_suffix('.key')}"]
    with BrokerProcess(arguments=files) as started:
        yield started


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    """A broker with the machine's clock."""
    with BrokerProcess(clock="system", flush="os") as started:
        yield started


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks at credentials."""
    path = access_file(tmp_path_factory.mktemp("access"), ACCESS)
    with BrokerProcess(clock="system", flush="os", arguments=[f"--access={path}"]) as started:
        yield started
