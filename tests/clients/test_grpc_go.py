"""The scenarios of 5.x clients with the official client of Go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, Refused, go5
from grpc_scenarios import GrpcScenarios

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with go5(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients of a process have nothing in common."""
    return driver


class TestGo(Conformance, GrpcScenarios):
    """Plaintext; TLS, its default, is one of the behaviours."""

    client = "go"

    def test_a_consumer_without_a_right_to_its_group_is_told(
        self, driver: Driver, guarded: BrokerProcess
    ) -> None:
        """The client begins when settings have come, and not before."""
        admin = AdminClient(guarded.admin_url.replace("//", "//:of-the-operator@"))
        admin.post("/v1/topics", {"name": "suite-told", "type": "mixed", "queues": 2})
        asked = {"topic": "suite-told", "group": "of-others", "filter": "*"}
        at = self.at(guarded, "told") | {"key": "app", "secret": "secret-1"}
        for kind in ("simple", "push"):
            with pytest.raises(Refused, match="no permission to access Group:of-others"):
                driver.ask(kind, **asked, **at)
