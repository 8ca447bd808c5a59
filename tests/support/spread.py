"""The scheduler of pytest-xdist workers: tests that share an expensive fixture stay together.

A worker takes a whole file, so that a module's broker is started once. All Spark tests are one
piece, because a session costs a JVM, and is fastest after the first hundred jobs. The other workers
run the rest meanwhile.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

TOGETHER = "tests/spark/"


class Spread(LoadScopeScheduling):
    """A scheduler that deals pieces in the order in which they were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        # Reordering is by count of tests, and many tests are short
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]
