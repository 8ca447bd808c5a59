"""Access to a run's file: opened on use, made whole if damaged, replaced by a blank if lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from horolog.delay.far.row_states import RowStates
from horolog.delay.run.reader import Run, RunInfo
from horolog.delay.run.repair import BlankRun
from horolog.errors import ErrorCode, HorologError, Problem


class RunAccess:
    """Opens the file of a run, and survives its loss.

    path            of the file, for problems
    unreadable      why the file cannot be read any more; "": it can
    report_problem  called with each problem
    rebuild_file    makes a damaged file whole; returns False if that is impossible
    """

    def __init__(self, info: RunInfo, states: RowStates, open_run: Callable[[str], Run]) -> None:
        self.info = info
        self.path = ""
        self.unreadable = ""
        self.report_problem: Callable[[Problem], None] = lambda problem: None
        self.rebuild_file: Callable[[], bool] = lambda: False
        self._states = states
        self._open = open_run

    @property
    def label(self) -> str:
        """The name of the run in problems."""
        return f"run {self.info.name}"

    @property
    def file(self) -> Run:
        """The open file; a blank in its place once the file cannot be read any more."""
        if self.unreadable:
            return BlankRun(self.info, self.path)
        try:
            return self._open(self.info.name)
        except (HorologError, FileNotFoundError) as error:
            if isinstance(error, HorologError) and error.code is not ErrorCode.DAMAGED:
                raise
            return self._give_up_file(str(error))

    @property
    def directory(self) -> npt.NDArray[Any]:
        """The directory of the file; empty if it cannot be read."""
        try:
            return self.file.directory
        except HorologError as error:
            if error.code is not ErrorCode.DAMAGED:
                raise  # a file that cannot be opened now is no damaged file
            if self.rebuild_file():
                return self.file.directory
            return self._give_up_file(error.message).directory

    def _give_up_file(self, why: str) -> Run:
        """Give up an unreadable file: what waits is not served until a start sets it aside."""
        self.unreadable = why
        text = (
            f"{self.label}: {self._states.waiting} messages that wait in it are quarantined until "
            f"the next start, which rebuilds what the log has of them ({why})"
        )
        self.report_problem(Problem(text, self.path, unreadable_key(self.info.name)))
        return BlankRun(self.info, self.path)


def unreadable_key(name: str) -> str:
    """Return the key of the problem that reports a run that cannot be read any more."""
    return f"run {name}: unreadable"
