"""pytest plugin: the fixture `horolog_broker`, a real broker with a clock that a test moves.

The plugin is installed with horolog; there is nothing to import:

    def test_unpaid_order_is_cancelled(horolog_broker):
        horolog_broker.create_topic("orders")
        shop = Shop(horolog_broker.grpc_endpoint)
        shop.place("4711")
        horolog_broker.advance("30m")
        ...

To choose another clock or flush policy, override the fixture `horolog_broker_options` in a module
or conftest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from horolog.testing.broker import BrokerProcess


@pytest.fixture
def horolog_broker_options() -> dict[str, Any]:
    """Arguments for `BrokerProcess`, e.g. {"clock": "system"}.

    Override this fixture to pass others.
    """
    return {}


@pytest.fixture
def horolog_broker(horolog_broker_options: dict[str, Any]) -> Iterator[BrokerProcess]:
    """A started `horolog.testing.broker.BrokerProcess` in a temporary directory.

    The broker ends with the test.
    """
    # Imported here, because pytest loads this plugin wherever horolog is installed
    from horolog.testing.broker import BrokerProcess

    with BrokerProcess(**horolog_broker_options) as broker:
        yield broker
