"""Half an hour passes in milliseconds: the shop against a real broker with a simulated clock."""

from __future__ import annotations

import pytest
from shop import TOPIC, Shop

from horolog.testing.broker import BrokerProcess


@pytest.fixture
def shop(horolog_broker: BrokerProcess) -> Shop:
    """A shop with a broker of its own."""
    horolog_broker.create_topic(TOPIC)
    return Shop(horolog_broker.admin_url)


def test_an_unpaid_order_is_cancelled_after_half_an_hour(
    shop: Shop, horolog_broker: BrokerProcess
) -> None:
    """Not a minute before."""
    shop.place("4711")
    horolog_broker.advance("29m")
    assert shop.cancel_unpaid() == []
    horolog_broker.advance("1m")
    assert shop.cancel_unpaid() == ["4711"]


def test_a_paid_order_stays(shop: Shop, horolog_broker: BrokerProcess) -> None:
    """The question is recalled and never comes."""
    shop.place("4711")
    shop.pay("4711")
    assert horolog_broker.pending(TOPIC) == 0
    horolog_broker.advance("1h")
    assert shop.cancel_unpaid() == []


def test_a_payment_at_the_last_moment_counts(shop: Shop, horolog_broker: BrokerProcess) -> None:
    """The recall comes too late, but the shop looks before it cancels."""
    shop.place("4711")
    horolog_broker.advance("30m")
    shop.pay("4711")
    assert shop.cancel_unpaid() == []
    assert shop.orders["4711"].state == "paid"


def test_a_crash_of_the_broker_forgets_no_order(shop: Shop, horolog_broker: BrokerProcess) -> None:
    """Killed and started again, on the same ports."""
    for number in range(20):
        shop.place(str(number))
    horolog_broker.kill()
    horolog_broker.restart()
    assert horolog_broker.pending(TOPIC) == 20
    horolog_broker.advance("30m")
    assert shop.cancel_unpaid() == [str(number) for number in range(20)]
    assert shop.cancel_unpaid() == []
