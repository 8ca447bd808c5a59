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
"""Returned by a handler instead of a result: the command is answered already, or will be later."""

WAIT = object()
"""Returned by a handler if the command has to be decided again in a later turn."""

Handler = Callable[[Input, Any, Now, Effects], object]
"""Decides one kind of command.

Called with the input, its command, the time, and the effects of the turn, to which it may add.
Returns the result, LATER or WAIT.  A HorologError that it raises becomes the answer.
"""
