"""What the door remembers of each client from its Telemetry stream: its type, and how long its polls wait."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, TypeVar

from horolog.limits import CLIENTS_REMEMBERED_MAX

T = TypeVar("T")
_Heard = tuple[T, int]  # and how many sweeps there had been when it was heard of last


class ClientSettings(NamedTuple):
    """Settings in force; `poll_ms` is None where the client has said nothing of polls."""

    client_type: int
    poll_ms: int | None = None


class Clients:
    """Clients by id, the least recently heard of dropped first; they settle again when they come back.

    The door calls `sweep` every CLIENT_SWEEP_MS, so that clients that come and go leave nothing behind.
    """

    def __init__(self) -> None:
        self._sweeps = 0
        self._known: OrderedDict[str, _Heard[ClientSettings]] = OrderedDict()
        # Said good-bye, and not heard of since:
        self._gone: OrderedDict[str, _Heard[None]] = OrderedDict()

    def sweep(self) -> None:
        """Forget whom nobody has heard of since the sweep before."""
        self._known = _heard_since(self._known, self._sweeps)
        self._gone = _heard_since(self._gone, self._sweeps)
        self._sweeps += 1

    def settle(self, client_id: str, settings: ClientSettings) -> None:
        """Its settings over Telemetry."""
        self._gone.pop(client_id, None)
        _put(self._known, client_id, (settings, self._sweeps))

    def beat(self, client_id: str, client_type: int) -> bool:
        """A heartbeat; whether anything is known of the client.  Old clients do not say their type."""
        known = self._known.get(client_id)
        if known is None and not client_type:
            return False
        self.settle(client_id, known[0] if known else ClientSettings(client_type))
        return True

    def forget(self, client_id: str) -> None:
        """It goes; a receive that it still has under way must not wait."""
        self._known.pop(client_id, None)
        _put(self._gone, client_id, (None, self._sweeps))

    def poll_ms(self, client_id: str) -> int | None:
        """How long a poll waits that does not say so itself."""
        known = self._known.get(client_id)
        return known[0].poll_ms if known else None

    def is_gone(self, client_id: str) -> bool:
        """Whether the last that was heard of it is its good-bye."""
        return client_id in self._gone


def _heard_since(clients: OrderedDict[str, _Heard[T]], sweeps: int) -> OrderedDict[str, _Heard[T]]:
    """A copy, since a dict does not shrink."""
    while clients and next(iter(clients.values()))[1] < sweeps:
        clients.popitem(last=False)
    return OrderedDict(clients)


def _put(clients: OrderedDict[str, _Heard[T]], client_id: str, value: _Heard[T]) -> None:
    clients[client_id] = value
    clients.move_to_end(client_id)
    if len(clients) > CLIENTS_REMEMBERED_MAX:
        clients.popitem(last=False)
