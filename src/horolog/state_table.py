"""State tables: (state, event) → the state after it.

A state machine is written down once, as a dict under its theory, and read by the code and by a test that goes through
every pair.  A pair that is not in the table must not come: then what the table is about stays as it was, and the
AssertionError names both.  What a client, a disk or a job may legally ask for at the wrong time is asked of the table
first (`allows`) and refused with an error of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Name(StrEnum):
    """States and events of a table that is asked for every message: hashed as the text they are.

    The hash of an Enum is a call of Python, four times as much as the rest of a look into the table.
    """

    __hash__ = str.__hash__


def after(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """The state after an event; AssertionError if the table does not have it."""
    found = table.get((state, event))
    assert found is not None, f"illegal event: {event} in state {state}"
    return found


def allows(table: Mapping[tuple[S, E], S], state: S, event: E) -> bool:
    """Whether the event may come in that state."""
    return (state, event) in table
