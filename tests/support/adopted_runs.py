"""Runs for adoption, written without Spark: a test stages files in a running broker's directory.

claim = stage(begun, "a", messages)          # begun: the answer of POST /v1/adoptions/begin
admin.post("/v1/adoptions/commit", {..., "files": [claim]})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horolog.protocol.commands import NewMessage
from horolog.storage.disk import Disk
from horolog.testing.adopted_runs import footer_crc, made_record, write_adopted

__all__ = ["footer_crc", "made_record", "stage", "write_adopted"]


def stage(
    begun: Mapping[str, Any], name: str, messages: Sequence[NewMessage]
) -> dict[str, str | int]:
    """Write `<name>.run` into a transaction's staging directory, and return its manifest row."""
    claim = write_adopted(
        Disk(Path(begun["staging"])),
        "",
        name,
        messages,
        log_id=int(begun["log_id"], 16),
        topic=begun["topic_number"],
        queues=begun["queues"],
    )
    return claim._asdict()
