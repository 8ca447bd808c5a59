"""Data directories of released versions, as they are kept in tests/golden/released.

A broker's directory has segments of 256 MiB, which are zeros but for their beginning. A kept
directory has each file without the zeros at its end, and `sizes` has the true lengths.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

RELEASED = Path(__file__).parents[1] / "golden" / "released"
_NOT_KEPT = {"lock"}
_PIECE = 1 << 20


def pack(directory: Path, target: Path) -> dict[str, int]:
    """Keep a directory; return the true size of each file."""
    sizes = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            if path.is_dir():
                archive.writestr(zipfile.ZipInfo(f"{name}/"), b"")
            elif name not in _NOT_KEPT:
                sizes[name] = path.stat().st_size
                archive.writestr(zipfile.ZipInfo(name), _without_zeros(path), zipfile.ZIP_DEFLATED)
    return sizes


def _without_zeros(path: Path) -> bytes:
    kept = bytearray()
    zeros = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            used = piece.rstrip(b"\0")
            if used:
                kept += bytes(zeros) + piece
                zeros = 0
            else:
                zeros += len(piece)
    return bytes(kept).rstrip(b"\0")


def unpack(version: str, target: Path) -> dict[str, Any]:
    """Restore a directory as that version left it; return the description of its contents."""
    with zipfile.ZipFile(RELEASED / f"{version}.zip") as archive:
        archive.extractall(target)
    kept: dict[str, Any] = json.loads((RELEASED / f"{version}.json").read_text(encoding="utf-8"))
    for name, size in kept["sizes"].items():
        with (target / name).open("r+b") as file:
            file.truncate(size)
    return kept
