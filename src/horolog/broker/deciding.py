"""Shared types of command handlers: an input, the handler signature, LATER and WAIT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from horolog.broker.effects import Effects, Now
from horolog.protocol.commands import Command


class Input(NamedTuple):
    """A command and the token that its reply will carry."""

    token: object
    command: Command


LATER = object()
"""What a handler gives for a command that it does not answer with a result."""

WAIT = object()
"""What it gives for a command that has to be asked for again in a later turn."""

Handler = Callable[[Input, Any, Now, Effects], object]
"""Decides one kind of command: called with the input, its command, the time, and the effects of the turn, to which it
may add; gives the result, or LATER or WAIT.  A HorologError that it raises is the answer.
"""
