"""Pulls and pops without an answer yet, by connection: they end with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from horolog.protocol.commands import CancelReceive, Receive
from horolog.protocol.queue_commands import Pull
from horolog.server.loop import Engine
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.request import Request
from horolog.server.ticket import Ticket, ignore_result

_Command = TypeVar("_Command", Receive, Pull)


class Unanswered(NamedTuple, Generic[_Command]):
    """A command without an answer yet, and the ticket that cancels it."""

    ticket: Ticket
    command: _Command


class UnansweredRequests(Generic[_Command]):
    """The requests of one kind without an answer yet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._of_link: dict[RemotingLink, dict[Request, Unanswered[_Command]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_link)

    def add(self, request: Request, ticket: Ticket, command: _Command) -> None:
        """Add a request for which the core was asked."""
        self._of_link.setdefault(request.link, {})[request] = Unanswered(ticket, command)

    def remove(self, request: Request) -> None:
        """Remove a request that has its answer; do nothing if it is not there."""
        own = self._of_link.get(request.link)
        if own is not None:
            own.pop(request, None)
            if not own:
                del self._of_link[request.link]

    def of_link(self, link: RemotingLink) -> Iterator[Unanswered[_Command]]:
        """Yield the requests of a connection."""
        yield from self._of_link.get(link, {}).values()

    def commands(self) -> Iterator[_Command]:
        """Yield the commands of all requests."""
        return (each.command for own in self._of_link.values() for each in own.values())

    def links(self) -> list[RemotingLink]:
        """Return the connections that have requests under way."""
        return list(self._of_link)

    def cancel(self, link: RemotingLink) -> list[Request]:
        """Cancel the requests of a connection, and return them: nothing else answers them."""
        own = self._of_link.pop(link, {})
        for ticket, _ in own.values():
            self._engine.ask(CancelReceive(ticket), ignore_result)
        return list(own)
