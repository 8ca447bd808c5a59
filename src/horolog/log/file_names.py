"""Names of files that say where they begin: twenty digits and a kind, as in `00000000000000000000.log`.

What has another name is none of them, whoever put it there: a copy, an editor's file, digits of other scripts.
"""

from __future__ import annotations

_DIGITS = 20


def name_of(number: int, kind: str) -> str:
    """The name of the file of a kind that begins there."""
    return f"{number:0{_DIGITS}d}.{kind}"


def number_of(name: str, kind: str) -> int | None:
    """The number in the name of a file of a kind, such as `log`; None: it is no such name."""
    digits, _, ending = name.partition(".")
    is_one = ending == kind and len(digits) == _DIGITS and digits.isascii() and digits.isdecimal()
    return int(digits) if is_one else None


def numbers_of(names: list[str], kind: str) -> list[int]:
    """Those of all that are, ascending."""
    return sorted(at for name in names if (at := number_of(name, kind)) is not None)
