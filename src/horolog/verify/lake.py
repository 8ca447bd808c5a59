"""Check of a checkpoint's state of the lake: its file, and the hours that the lake has taken."""

from __future__ import annotations

from typing import Any

from horolog.delay.tier import state_name
from horolog.lake.core.stages import Stage
from horolog.lake.core.state import Lake
from horolog.lake.core.state_file import NAME
from horolog.limits import HOUR_MS
from horolog.storage.api import read_file
from horolog.verify.reading import Reading


class LakeCheck:
    """Check of the registry's `lake` and its state file."""

    def __init__(self, registry: dict[str, Any]) -> None:
        self._registry = registry
        self._spans = [
            (row["from_ms"] // HOUR_MS, row["last_hour"])
            for row in registry.get("offloads", [])
            if row["stage"] == Stage.LAKE
        ]

    def run(self, reading: Reading, place: str) -> None:
        """Read the state file."""
        if version := self._registry.get("version"):
            path = f"{place}/{state_name(NAME, version)}"
            with reading.part(path):
                content = read_file(reading.storage, path)
                reading.tick(path, len(content))
                why = Lake().restore(self._registry, content)
                if why:
                    reading.findings.add(path, 0, why)

    def has_taken(self, hour: int) -> bool:
        """Return whether messages of an hour went to the lake.

        They wait there, or came back with new origins.
        """
        return any(first <= hour <= last for first, last in self._spans)
