"""What a service manager is told: ready, reloading, stopping, a line of status, and that the core is alive.

systemd starts a unit with `Type=notify` with a datagram socket in NOTIFY_SOCKET, and with `WatchdogSec=` with
WATCHDOG_USEC.  The protocol is sd_notify(3): lines of KEY=VALUE in one datagram.  Without these variables nothing is
told and nothing runs.

The watchdog is fed only by answers of the core.  A loop that hangs feeds nothing because it runs nothing; a core that
takes no turns, or whose log is not written, does not answer; so the watchdog fires, the process is ended with a
trace of its threads, and a new start recovers from the directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

from horolog.errors import HorologError
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.server.running import RunningEngine
from horolog.units import counted

_log = logging.getLogger("horolog.supervisor")
_BEATS = 3  # in the time after which the watchdog fires: one may be late, and one more lost
_AGAIN_S = 1.0  # after a question without an answer, or sooner where the watchdog is quick
_SEND_TIMEOUT_S = 1.0  # a service manager that does not read must not hold us up


class Supervisor:
    """Whoever started us, if it wants to be told.

    address     of its socket; "": nobody is told
    watchdog_s  how long it waits for a sign of life; 0: it does not
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._beating: asyncio.Task[None] | None = None
        self._deaf = False

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Supervisor:
        """The one of this process; its variables are taken out, so that nobody we start speaks for us."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        whose = environment.pop("WATCHDOG_PID", "")
        is_ours = not whose or whose == str(os.getpid())
        watchdog_s = int(microseconds) / 1e6 if microseconds.isdigit() and is_ours else 0.0
        if not address.startswith(("/", "@")):
            address = ""
        return cls(address, watchdog_s)

    @property
    def is_there(self) -> bool:
        """Whether anybody is told."""
        return bool(self._address)

    # --- life -------------------------------------------------------------------------------------

    def starting(self, what: str) -> None:
        """A status before it is ready."""
        self._tell(f"STATUS={_line(what)}")

    def ready(self, engine: RunningEngine, view: BrokerView) -> None:
        """Clients can connect; from now on the watchdog is fed."""
        self._tell("READY=1", f"STATUS={_status(view)}")
        if self.is_there and self._watchdog_s > 0 and self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat(engine))

    def reloading(self) -> None:
        """Files are read again; `reloaded` follows."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def reloaded(self, problems: list[str]) -> None:
        """They have been read, or not."""
        lines = [f"STATUS=reload refused: {_line('; '.join(problems))}"] if problems else []
        self._tell("READY=1", *lines)

    def stopping(self, why: str = "") -> None:
        """No more signs of life; the service manager counts the time that stopping may take."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        self._tell("STOPPING=1", f"STATUS={_line(why) or 'stopping'}")

    # --- watchdog ---------------------------------------------------------------------------------

    async def _beat(self, engine: RunningEngine) -> None:
        pause_s = self._watchdog_s / _BEATS
        while True:
            view = await _ask(engine, pause_s)
            if view is None:
                await asyncio.sleep(min(_AGAIN_S, pause_s / 2))
                continue
            self._tell("WATCHDOG=1", f"STATUS={_status(view)}")
            await asyncio.sleep(pause_s)

    def _tell(self, *lines: str) -> None:
        """One datagram; what cannot be told is logged once."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sent:
                sent.settimeout(_SEND_TIMEOUT_S)
                sent.sendto("\n".join(lines).encode(errors="replace"), self._address)
            self._deaf = False
        except OSError as error:
            if not self._deaf:
                _log.warning("service manager not told socket=%r: %s", self._address, error)
            self._deaf = True


async def _ask(engine: RunningEngine, within_s: float) -> BrokerView | None:
    """The core's answer; None: it refused, or said nothing in this time."""
    with suppress(TimeoutError, HorologError):
        view: BrokerView = await asyncio.wait_for(engine.submit(DescribeBroker()), within_s)
        return view
    return None


def _status(view: BrokerView) -> str:
    """One line for `systemctl status`."""
    text = f"serving, {counted(view.pending, 'message')} pending"
    if view.problems:
        return _line(f"{text}, {counted(len(view.problems), 'problem')}: {view.problems[0]}")
    return text


def _line(text: str) -> str:
    """Text as one line: a line break would begin another variable."""
    return " ".join(text.split())
