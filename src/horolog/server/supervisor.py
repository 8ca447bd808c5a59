"""Notify the service manager: ready, reloading, stopping, a status line, and signs of life.

systemd starts a unit with `Type=notify` with a datagram socket in NOTIFY_SOCKET, and with
`WatchdogSec=` with WATCHDOG_USEC.  The protocol is sd_notify(3): lines of KEY=VALUE in one
datagram.  Without these variables nothing is sent and no task runs.

Only answers of the core feed the watchdog.  A loop that hangs sends nothing; a core that takes no
turns, or whose log is not written, does not answer.  Then the watchdog fires, the process is ended
with a trace of its threads, and a new start recovers from the directory.
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
from horolog.units import counted, parse_unsigned

_log = logging.getLogger("horolog.supervisor")
_BEATS = 3  # in the time after which the watchdog fires: one may be late, and one more lost
_AGAIN_S = 1.0  # seconds until the core is asked again, or sooner where the watchdog is quick
_SEND_TIMEOUT_S = 1.0  # a service manager that does not read must not block the broker


class Supervisor:
    """The service manager that started the process, if there is one.

    address     of its socket; "": there is none, and nothing is sent
    watchdog_s  seconds it waits for a sign of life; 0: it does not wait for any
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._beating: asyncio.Task[None] | None = None
        self._has_failed = False

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Supervisor:
        """Read the service manager of this process from its environment.

        The variables are removed, so that no child process notifies the service manager.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        whose = environment.pop("WATCHDOG_PID", "")
        is_ours = not whose or whose == str(os.getpid())
        watchdog_s = (parse_unsigned(microseconds) or 0) / 1e6 if is_ours else 0.0
        if not address.startswith(("/", "@")):
            address = ""
        return cls(address, watchdog_s)

    @property
    def is_there(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    # --- life -------------------------------------------------------------------------------------

    def starting(self, what: str) -> None:
        """Send a status before the broker is ready."""
        self._notify(f"STATUS={_line(what)}")

    def ready(self, engine: RunningEngine, view: BrokerView) -> None:
        """Report that clients can connect, and start to feed the watchdog."""
        self._notify("READY=1", f"STATUS={_status(view)}")
        if self.is_there and self._watchdog_s > 0 and self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat(engine))

    def reloading(self) -> None:
        """Report that files are read again; call `reloaded` next."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def reloaded(self, problems: list[str]) -> None:
        """Report that the files have been read, with the problems of those that were refused."""
        lines = [f"STATUS=reload refused: {_line('; '.join(problems))}"] if problems else []
        self._notify("READY=1", *lines)

    def stopping(self, why: str = "") -> None:
        """Report that the broker stops, and feed the watchdog no more.

        The service manager counts the time that stopping may take.
        """
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        self._notify("STOPPING=1", f"STATUS={_line(why) or 'stopping'}")

    # --- watchdog ---------------------------------------------------------------------------------

    async def _beat(self, engine: RunningEngine) -> None:
        pause_s = self._watchdog_s / _BEATS
        while True:
            view = await _ask(engine, pause_s)
            if view is None:
                await asyncio.sleep(min(_AGAIN_S, pause_s / 2))
                continue
            self._notify("WATCHDOG=1", f"STATUS={_status(view)}")
            await asyncio.sleep(pause_s)

    def _notify(self, *lines: str) -> None:
        """Send one datagram; log only the first of several failures in a row."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sent:
                sent.settimeout(_SEND_TIMEOUT_S)
                sent.sendto("\n".join(lines).encode(errors="replace"), self._address)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("service manager not notified socket=%r: %s", self._address, error)
            self._has_failed = True


async def _ask(engine: RunningEngine, within_s: float) -> BrokerView | None:
    """Return the core's answer; None if it refused, or did not answer within `within_s` seconds."""
    with suppress(TimeoutError, HorologError):
        view: BrokerView = await asyncio.wait_for(engine.submit(DescribeBroker()), within_s)
        return view
    return None


def _status(view: BrokerView) -> str:
    """Return the line that `systemctl status` shows."""
    text = f"serving, {counted(view.pending, 'message')} pending"
    if view.problems:
        return _line(f"{text}, {counted(len(view.problems), 'problem')}: {view.problems[0]}")
    return text


def _line(text: str) -> str:
    """Return text as one line: a line break would begin another variable."""
    return " ".join(text.split())
