"""Who waits for whom: every row of the table in `broker.waits`, and that the table says what the code does."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.broker import waits
from horolog.broker.waits import WAITS, BulkPiece, HandOver, TakeRuns, Wait, waits_for
from horolog.protocol.commands import (
    Ack,
    CountBy,
    CountPending,
    DeleteTopic,
    FindMessages,
    ListPending,
    Recall,
    RecallByKey,
    RecallMany,
    Reschedule,
    SendMessages,
)
from horolog.protocol.history_commands import PagePending, PendingPlace, ShowMessage
from horolog.protocol.schedules import (
    ChangeSchedule,
    Content,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    Rule,
)
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeTier,
    FreezeOffload,
    RecallRows,
)

ROWS = [
    (HandOver(), {"log", "tier step"}),
    (BulkPiece(), {"log", "tier step", "earlier", "bulk piece"}),
    (TakeRuns(), {"bulk count"}),
    (BeginOffload("a", 0), {"tier step"}),
    (FreezeOffload(1), {"tier step", "frozen buffers"}),
    (AbortOffload(1), {"tier step"}),
    (RecallRows(np.empty(0)), {"tier step"}),
    (CommitOffload(1, 2, "uri"), {"tier step", "frozen buffers", "bulk recall", "recalls"}),
    (Recall("t", "m", 1), {"tier step", "adoption", "unfiled"}),
    (Reschedule("t", "m", 1, 2), {"tier step", "adoption", "unfiled"}),
    (RecallByKey("t", "k"), {"key search", "tier step", "adoption", "unfiled"}),
    (FindMessages("t", key="k"), {"key search", "history"}),
    (ShowMessage("t", "m"), {"history"}),
    (ListPending(0, 1), {"listing"}),
    (PagePending(PendingPlace(0), 1), {"listing"}),
    (ChangeSchedule("s", Rule(), Content("t", b"x")), {"tier step", "unfiled"}),
    (PauseSchedule("s"), {"tier step", "unfiled"}),
    (RemoveSchedule("s"), {"tier step", "unfiled"}),
    (ResumeSchedule("s"), set()),
    (DeleteTopic("t"), {"topic", "adoption", "bulk recall", "tier step", "checkpoint"}),
    (SendMessages("t", []), set()),
    (Ack("g", "t", []), set()),
    (RecallMany("t", 0, 1), set()),  # its pieces do
    (CountPending(CountBy.HOUR), set()),
    (DescribeTier(1), set()),
]


class Facts(NamedTuple):
    """What is under way, whatever it is about."""

    there: frozenset[Wait]

    def has(self, what: Wait, _command: object, _token: object) -> bool:
        return what in self.there


@pytest.mark.parametrize(
    ("row", "what"),
    list(product(ROWS, Wait)),
    ids=lambda each: each.value if isinstance(each, Wait) else type(each[0]).__name__,
)
def test_a_command_waits_for_what_its_row_names_and_for_nothing_else(row, what) -> None:
    command, named = row
    found = waits_for(command, Facts(frozenset({what})))
    assert found is (what if what.value in named else None)


@given(st.frozensets(st.sampled_from(Wait)), st.sampled_from(ROWS))
def test_it_waits_until_all_of_it_is_over(there, row) -> None:
    command, named = row
    found = waits_for(command, Facts(there))
    assert (found is None) == named.isdisjoint(there)
    assert found is None or found in there & named


def test_every_row_is_tried() -> None:
    assert set(WAITS) == {type(command) for command, named in ROWS if named}


def test_the_table_in_the_docstring_is_the_one_that_is_obeyed() -> None:
    fields: dict[str, list[str]] = {}
    for line in (waits.__doc__ or "").splitlines():
        row = re.fullmatch(r"([A-Z]\w+(?:, [A-Z]\w+)*) {2,}(\w.*)", line)
        if row is not None:
            fields |= dict.fromkeys(row[1].split(", "), row[2].split(", "))
    assert fields == {kind.__name__: [each.value for each in of] for kind, of in WAITS.items()}
