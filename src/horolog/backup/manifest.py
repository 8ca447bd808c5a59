"""The manifest of a backup: its files, where they lie, and what their bytes must be.

A backup directory holds `manifest.json`, `lock`, and one directory for every backup that still
contributes files, named by its number:

    manifest.json
    000001/shard-00/log/00000000000000000000.log      copied by the first backup, unchanged since
    000003/shard-00/checkpoint/….ckpt                 copied by the third, the newest

A backup writes into the directory of its own number only, then replaces the manifest atomically,
then removes what the manifest no longer names.  So an interrupted backup leaves the former manifest
and all of its files.

`manifest.json` is JSON:

===========  ======  ===========================================================================
field        type    meaning
===========  ======  ===========================================================================
format       int     1; any other is refused
number       int     of the backup that wrote it: 1, 2, 3 …; 0: begun, no backup is complete yet
log_id       text    16 hex digits, of the data directory; a backup of another log is refused
horolog      text    version of the broker that wrote it
made_ms      int     wall clock of the broker, UTC epoch milliseconds; the backup has what was
                     answered before
position     int     log position of the checkpoint: up to there the backup holds the log
last_frame   int     log position of the frame that ends there
frame_crc    int     CRC of that frame's header, by which the same history is recognised
files        list    {path, bytes, crc32, number}: path in the data directory, and the directory
                     of the backup that holds the copy
damaged      list    {path, kind, position, what, before}: damage found while copying; left out if
                     there is none
crc32        int     CRC-32 of the JSON of all the other fields, keys sorted, without spaces
===========  ======  ===========================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, refused
from horolog.storage.api import Storage, read_file, replace_file
from horolog.units import parse_unsigned

MANIFEST_NAME = "manifest.json"
MISSING, SHORT, UNREADABLE = "missing", "short", "unreadable"
FORMAT = 1
UNCHECKED = -1  # in the place of a CRC: the right one is unknown


class StoredFile(NamedTuple):
    """One file of a backup."""

    path: str  # path in the data directory
    bytes: int
    crc32: int
    number: int  # of the backup that copied it

    @property
    def place(self) -> str:
        """Path in the backup directory."""
        return f"{number_name(self.number)}/{self.path}"


class Damaged(NamedTuple):
    """A damaged part of a data directory, found when it was copied.

    kind      `missing`, `short`, or `unreadable`: a part of the copy, which has its full length
    position  log position for a segment, else the first byte that is missing or unreadable
    before    the backup whose copy of the file is kept because of the damage, though the manifest
              does not name it; 0: none
    """

    path: str
    kind: str
    position: int
    what: str
    before: int = 0

    @property
    def text(self) -> str:
        """The damage in one sentence."""
        return f"{self.path} at {self.position}: {self.what}"


class Manifest(NamedTuple):
    """The content of `manifest.json`."""

    number: int
    log_id: int
    horolog: str
    made_ms: int
    position: int
    last_frame: int
    frame_crc: int
    files: list[StoredFile]
    damaged: list[Damaged] = []  # noqa: RUF012 - never changed

    @property
    def complete(self) -> bool:
        """Whether a backup is complete, not only the first one begun."""
        return self.number > 0

    @property
    def is_rebuilt(self) -> bool:
        """Whether the manifest was made from the files that lie there (`rebuilt_manifest`)."""
        return any(file.crc32 == UNCHECKED for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


def number_name(number: int) -> str:
    """Return the directory name for the files that one backup copied."""
    return f"{number:06d}"


def is_number_name(name: str) -> bool:
    """Return whether a name is one that `number_name` returns."""
    number = parse_unsigned(name)
    return number is not None and number_name(number) == name


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the complete file."""
    fields = {
        "format": FORMAT,
        **manifest._asdict(),
        "log_id": f"{manifest.log_id:016x}",
        "files": [file._asdict() for file in manifest.files],
        "damaged": [each._asdict() for each in manifest.damaged],
    }
    if not manifest.damaged:
        del fields["damaged"]
    fields["crc32"] = crc_of(fields)
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"


def crc_of(fields: dict[str, Any]) -> int:
    """Compute the `crc32` of a manifest with these fields."""
    return crc32(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS))


def decode_manifest(content: bytes, field: str) -> Manifest:
    """Decode the file; DAMAGED: not intact; VERSION_UNSUPPORTED: a newer horolog wrote it.

    field  how the caller names the backup directory
    """
    try:
        fields = orjson.loads(content)
        version = int(fields["format"])
        if version == FORMAT:
            expected = int(fields.pop("crc32"))
            if expected != crc_of(fields):
                raise ValueError("its check sum is wrong")
            del fields["format"]
            files = [_stored_file(file) for file in fields.pop("files")]
            damaged = [Damaged(**each) for each in fields.pop("damaged", [])]
            log_id = int(fields.pop("log_id"), 16)
            return Manifest(**fields, log_id=log_id, files=files, damaged=damaged)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise refused(
            field,
            f"{MANIFEST_NAME} is not an intact manifest of horolog ({error})",
            code=ErrorCode.DAMAGED,
        ) from error
    raise refused(
        field,
        f"{MANIFEST_NAME} has format {version}; this horolog reads format {FORMAT}",
        f"format {FORMAT}",
        code=ErrorCode.VERSION_UNSUPPORTED,
    )


def _stored_file(fields: dict[str, Any]) -> StoredFile:
    file = StoredFile(**fields)
    if {"", ".", ".."} & set(file.path.split("/")):
        raise ValueError(f"path {file.path!r} leads out of the directory")
    return file


def read_manifest(storage: Storage, field: str) -> Manifest | None:
    """Read the manifest of a backup directory; None: there is none.  Errors: `decode_manifest`."""
    try:
        return decode_manifest(read_file(storage, MANIFEST_NAME), field)
    except FileNotFoundError:
        return None


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Replace the manifest atomically and durably."""
    replace_file(storage, "", MANIFEST_NAME, encode_manifest(manifest))
