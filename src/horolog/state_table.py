"""State tables: (state, event) → the next state.

A state machine is written down once, as a dict below the text that explains it, and used by the
code and by a test that checks every pair.  A pair that is not in the table is a bug: the
AssertionError names state and event, and the object stays unchanged.  Requests that a client, a
disk or a job may make at the wrong time are checked with `allows` first, and refused with an error
of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Name(StrEnum):
    """Base class for states and events of a table that is used for every message: hashed as a str.

    The hash of an Enum is a Python call, which costs four times as much as the rest of a look-up in
    the table.
    """

    __hash__ = str.__hash__


def after(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state after an event; AssertionError if the table does not allow the event."""
    found = table.get((state, event))
    assert found is not None, f"illegal event: {event} in state {state}"
    return found


def allows(table: Mapping[tuple[S, E], S], state: S, event: E) -> bool:
    """Return whether the table allows an event in a state."""
    return (state, event) in table
