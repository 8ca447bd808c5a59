"""Brokers for the tests of official clients: two a module, whatever it tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from horolog.testing.broker import BrokerProcess


@pytest.fixture(scope="module")
def still() -> Iterator[BrokerProcess]:
    """A broker whose clock stands still unless a test moves it."""
    with BrokerProcess() as started:
        yield started


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    """A broker with the machine's clock."""
    with BrokerProcess(clock="system", flush="os") as started:
        yield started
