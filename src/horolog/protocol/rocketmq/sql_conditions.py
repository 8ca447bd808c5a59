"""Evaluation of SQL92 filters: values, comparisons, three-valued logic (rules: see `sql92`)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Get = Callable[[str], str | None]
Value = str | int | float | bool | None
Compute = Callable[[Get], Value]

LONG_MAX = (1 << 63) - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?\s*")


class NoMatch(Exception):
    """A value cannot be computed: the message does not match, whatever the other conditions say."""


class Node(NamedTuple):
    """A compiled part of an expression, and what it may be used as."""

    compute: Compute
    is_condition: bool = False
    is_constant: bool = False
    is_name: bool = False
    value: Value = None  # of a constant


def condition(node: Node) -> Node:
    """Return a node as a condition; a name alone is text, and never true.

    ValueError for other values.
    """
    if node.is_condition:
        return node
    if not node.is_name:
        raise ValueError("a value where a condition is needed")
    compute = node.compute
    return Node(lambda get: None if compute(get) is None else False, is_condition=True)


# --- values -------------------------------------------------------------------------------------


def _compare(left: Any, right: Any) -> int:
    """Return a value below, equal to or above 0 for the order of two values that are not None."""
    if isinstance(left, bool) or isinstance(right, bool):
        left, right = _truths(left, right)
    elif isinstance(left, str) is not isinstance(right, str):
        if isinstance(left, str):
            left = _number(left, right)
        else:
            right = _number(right, left)
    return int(left > right) - int(left < right)


def _truths(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(left, bool) and isinstance(right, str):
        raise NoMatch
    if isinstance(left, str):
        left = left.lower() == "true"
    return (left, right) if isinstance(left, bool) and isinstance(right, bool) else (0, 1)


def _number(text: str, beside: float) -> float:
    if isinstance(beside, int):
        if _INTEGER.fullmatch(text) and -LONG_MAX - 1 <= (number := int(text)) <= LONG_MAX:
            return number
        raise NoMatch
    return _double(text)


def _double(text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise NoMatch
    return float(found[1])


def ordered(left: Node, right: Node, test: Callable[[int, int], bool]) -> Node:
    """Build a comparison by order, such as `<`; two properties are compared as numbers."""
    for node in (left, right):
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        if node.is_condition or (node.is_constant and not is_number):
            raise ValueError("only numbers and properties have an order")
    one, other = left.compute, right.compute

    def compute(get: Get) -> bool | None:
        a = one(get)
        b = other(get) if a is not None else None
        if a is None or b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            a, b = _double(a), _double(b)
        return test(_compare(a, b), 0)

    return Node(compute, is_condition=True)


def equal(left: Node, right: Node) -> Node:
    """Build an equality; with NULL on the right it means IS NULL."""
    one, other = left.compute, right.compute

    def compute(get: Get) -> bool | None:
        a, b = one(get), other(get)
        if a is None:
            return True if b is None else None
        if b is None:
            return False
        if type(a) is type(b):
            return a == b
        return _compare(a, b) == 0

    return Node(compute, is_condition=True)


def checked_equal(left: Node, right: Node) -> Node:
    """Build `=`; ValueError for comparisons that make no sense."""
    for node in (left, right):
        if node.is_constant and node.value is None:
            raise ValueError("NULL is compared by IS NULL and IS NOT NULL")
    if isinstance(left.value, bool) and right.is_constant and not isinstance(right.value, bool):
        raise ValueError("a truth value cannot be compared with this")
    return equal(left, right)


def negation(node: Node) -> Node:
    """Build NOT."""
    inner = condition(node).compute

    def compute(get: Get) -> bool | None:
        found = inner(get)
        return None if found is None else not found

    return Node(compute, is_condition=True)


def both(left: Node, right: Node) -> Node:
    """Build AND."""
    return _joined(left, right, decisive=False)


def either(left: Node, right: Node) -> Node:
    """Build OR."""
    return _joined(left, right, decisive=True)


def _joined(left: Node, right: Node, *, decisive: bool) -> Node:
    """Build AND or OR: a side that is `decisive` decides; otherwise an unknown side does."""
    one, other = condition(left).compute, condition(right).compute

    def compute(get: Get) -> Value:
        a = one(get)
        if a is decisive:
            return decisive
        b = other(get)
        if b is decisive:
            return decisive
        return None if a is None or b is None else not decisive

    return Node(compute, is_condition=True)


def constant(value: Value) -> Node:
    """Build a literal."""
    is_condition = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_condition, is_constant=True, value=value)


_PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def part(node: Node, kind: str, text: str, *, wanted: bool) -> Node:
    """Build CONTAINS, STARTSWITH or ENDSWITH, or the opposite; false for a missing property."""
    inner, test, part = node.compute, _PARTS[kind], text

    def compute(get: Get) -> bool:
        found = inner(get)
        return bool(part) and isinstance(found, str) and test(found, part) is wanted

    return Node(compute, is_condition=True)


def among(node: Node, texts: Iterable[str], *, wanted: bool) -> Node:
    """Build IN or NOT IN; ValueError unless a property is on its left."""
    if not node.is_name:
        raise ValueError("IN needs a property on its left")
    inner, known = node.compute, frozenset(texts)

    def compute(get: Get) -> bool | None:
        found = inner(get)
        return None if found is None else (found in known) is wanted

    return Node(compute, is_condition=True)
