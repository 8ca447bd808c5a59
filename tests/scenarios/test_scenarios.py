"""Every scenario file over every pair of doors: what is sent over one protocol means the same over the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario import Scenario, ScenarioBroker, doors_of, rewritten, steps_of
from scenario_doors import sides

pytestmark = pytest.mark.process
FILES = sorted(Path(__file__).parent.glob("*.txt"))
SLOW = {"lake"}  # it loads Delta: more than five seconds
RUNS = [
    pytest.param(
        path,
        sender,
        receiver,
        id=f"{path.stem}-{sender}-{receiver}",
        marks=[pytest.mark.slow] if path.stem in SLOW else [],
    )
    for path in FILES
    for sender in doors_of(path.read_text(), "Sent")
    for receiver in doors_of(path.read_text(), "Received")
]


@pytest.fixture(scope="module")
def broker() -> Iterator[ScenarioBroker]:
    with ScenarioBroker(flush="os") as started:
        yield started


@pytest.mark.parametrize(("path", "sender", "receiver"), RUNS)
def test_scenario(broker: ScenarioBroker, path: Path, sender: str, receiver: str) -> None:
    broker.set_disk_free("all")  # after one that has failed
    with sides(broker, sender, receiver) as (out, into):
        scenario = Scenario(broker, out, into)
        for step in steps_of(path.read_text()):
            assert scenario.run(step) == step.says, f"{path.name}:{step.line}: {step.command}"


def test_a_file_that_says_what_it_says_is_not_changed() -> None:
    text = FILES[0].read_text()
    assert rewritten(text, [step.says for step in steps_of(text)]) == text
