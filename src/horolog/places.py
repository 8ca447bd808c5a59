"""Checks of locations that users name: a path on a disk is accepted, an object store is refused.

All code that takes a location of files calls `local_place` before it does anything:
`s3a://bucket/pending` is also a valid name of a local directory, and its user would believe that
the data went to the bucket.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from horolog.errors import HorologError, refused

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
SUPPORTED = "a plain path or a file:// URL"


def local_place(place: str | os.PathLike[str], what: str) -> str:
    """Return the path of a location; BAD_REQUEST if it is empty or in an unsupported store.

    what  the option as its user knows it, with which the error begins: `--rejects`, `--out`,
          `option 'path'`
    """
    text = os.fspath(place)
    if not text:
        raise refused(what, f"is empty; it must be {SUPPORTED}", SUPPORTED)
    found = _SCHEME.match(text.lstrip())
    if found is None:
        return text
    parts = urlsplit(text)
    scheme = found[1].lower()
    if scheme != "file":
        raise _refused(what, text, f"{scheme}: is not supported")
    if parts.netloc not in ("", "localhost"):
        raise _refused(what, text, f"names a host, {parts.netloc}")
    if not parts.path.startswith("/") or parts.query or parts.fragment:
        raise _refused(what, text, "is not the URL of a directory")
    return unquote(parts.path)


def is_irregular(path: Path) -> bool:
    """Return whether a path exists and is no regular file: a pipe, say, may never end.

    A path in a directory that may not be searched counts as missing: reading it gives the reason.
    """
    return os.path.exists(path) and not os.path.isfile(path)


def _refused(what: str, text: str, why: str) -> HorologError:
    return refused(
        what, f"{text!r} {why}; it must be {SUPPORTED} of a disk that all machines see", SUPPORTED
    )
