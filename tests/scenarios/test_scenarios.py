"""Every scenario file over every pair of doors: what is sent over one protocol means the same over the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario import Scenario, doors_of, rewritten, steps_of
from scenario_doors import sides

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process
FILES = sorted(Path(__file__).parent.glob("*.txt"))
RUNS = [
    pytest.param(path, sender, receiver, id=f"{path.stem}-{sender}-{receiver}")
    for path in FILES
    for sender in doors_of(path.read_text(), "Sent")
    for receiver in doors_of(path.read_text(), "Received")
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(flush="os") as started:
        yield started


@pytest.mark.parametrize(("path", "sender", "receiver"), RUNS)
def test_scenario(broker: BrokerProcess, path: Path, sender: str, receiver: str) -> None:
    with sides(broker, sender, receiver) as (out, into):
        scenario = Scenario(broker, out, into)
        for step in steps_of(path.read_text()):
            assert scenario.run(step) == step.says, f"{path.name}:{step.line}: {step.command}"


def test_a_file_that_says_what_it_says_is_not_changed() -> None:
    text = FILES[0].read_text()
    assert rewritten(text, [step.says for step in steps_of(text)]) == text
