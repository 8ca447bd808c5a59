"""Names of files that state where the file begins: twenty digits and a kind, as in `000…0.log`.

A file with any other name is ignored: a copy, an editor's file, a name with digits of other
scripts.
"""

from __future__ import annotations

_DIGITS = 20


def name_of(number: int, kind: str) -> str:
    """Return the name of the file of a kind, such as `log`, that begins at `number`."""
    return f"{number:0{_DIGITS}d}.{kind}"


def number_of(name: str, kind: str) -> int | None:
    """Return where a file of a kind, such as `log`, begins, by its name; None for other names."""
    digits, _, ending = name.partition(".")
    is_one = ending == kind and len(digits) == _DIGITS and digits.isascii() and digits.isdecimal()
    return int(digits) if is_one else None


def numbers_of(names: list[str], kind: str) -> list[int]:
    """Return where the files of a kind begin, ascending; names of other files are skipped."""
    return sorted(at for name in names if (at := number_of(name, kind)) is not None)
