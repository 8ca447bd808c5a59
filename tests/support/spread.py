"""How the tests are dealt to the workers of pytest-xdist: what shares something dear stays together.

A worker takes a whole file, so that a broker of a module is started once.  All tests of Spark are one piece: a session
costs a JVM, and is at its best after the first hundred jobs.  The other workers do the rest meanwhile.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

TOGETHER = "tests/spark/"


class Spread(LoadScopeScheduling):
    """Deals the pieces in the order in which they were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # which is by number, and many tests are short ones

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]
