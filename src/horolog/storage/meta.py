"""`meta` of a data directory: what a later start must not change.  Truth.

Its fields: docs/reference/formats.md.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from horolog.errors import ErrorCode, refused

FORMAT = 1
META = "meta"  # the name of the file
SHARD = "shard-00"
RESTORING = "restoring"  # a file that exists until a restore is complete


class Meta(NamedTuple):
    """The content of `meta`; the caller compares the format with `FORMAT`."""

    format: int
    log_id: int
    shards: int
    clock: str
    segment_bytes: int


def parse_meta(content: bytes) -> Meta:
    """Parse a `meta` file; ValueError, with what is wrong, if it is none of horolog's."""
    try:
        fields = orjson.loads(content)
        meta = Meta(
            int(fields["format"]),
            int(fields["log_id"], 16),
            int(fields["shards"]),
            str(fields["clock"]),
            int(fields["segment_bytes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from error
    if meta.segment_bytes < 1:
        raise ValueError(f"segment_bytes is {meta.segment_bytes}")
    return meta


def check_format(meta: Meta, field: str) -> None:
    """Raise VERSION_UNSUPPORTED, naming `field`, unless this horolog reads that format."""
    if meta.format != FORMAT:
        raise refused(
            field,
            f"format {meta.format}; this horolog reads format {FORMAT}",
            f"format {FORMAT}",
            code=ErrorCode.VERSION_UNSUPPORTED,
        )


def encode_meta(meta: Meta) -> bytes:
    """Encode the file."""
    fields = {**meta._asdict(), "log_id": f"{meta.log_id:016x}"}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"
