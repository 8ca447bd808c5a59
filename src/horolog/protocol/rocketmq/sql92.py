"""SQL92 filters: conditions on the properties of a message.

    a > 5 AND region IN ('eu', 'us')          TAGS IS NOT NULL AND NOT (price BETWEEN 10 AND 20)

`parse` compiles an expression once; `Selector.matches` then asks for the properties that the
expression names.  A condition is true, false or unknown, and only true matches:

    a missing property     unknown in comparisons, BETWEEN and IN; on the right of `=` and `<>`: not equal
    NOT                    of unknown is unknown
    AND                    false if one side is false, else unknown if one is unknown
    OR                     true if one side is true, else unknown if one is unknown
    CONTAINS, STARTSWITH, ENDSWITH, with NOT or without    false for a missing property or an empty text

Every property is text.  Compared with a number it is read as a number, compared with TRUE or FALSE
as a truth value; two properties are equal as texts, and `<` compares them as numbers.  A text that
is no number fails the whole message, even under NOT; so does anything else for which RocketMQ's
brokers raise an error.  NOT binds closer than `=`, as in RocketMQ.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import (
    UnexpectedCharacters,
    UnexpectedInput,
    UnexpectedToken,
    VisitError,
)

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import FILTER_EXPRESSION_MAX, SQL_DEPTH_MAX
from horolog.protocol.rocketmq import sql_conditions as conditions
from horolog.protocol.rocketmq.sql_conditions import LONG_MAX, Compute, Get, Node, NoMatch, Value

_GRAMMAR = r"""
?start: or
?or: and | or _OR and -> either
?and: equality | and _AND equality -> both
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> unequal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: unary
    | comparison ">" unary -> above
    | comparison ">=" unary -> at_least
    | comparison "<" unary -> below
    | comparison "<=" unary -> at_most
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")" -> among
    | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_among
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING -> part
    | comparison _NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> not_part
?unary: primary
    | "+" unary -> plus
    | "-" unary -> minus
    | _NOT unary -> negated
?primary: STRING -> text
    | LONG -> long
    | DOUBLE -> double
    | TRUE -> true
    | FALSE -> false
    | _NULL -> null
    | NAME -> name
    | "(" or ")"

_OR.2: /or\b/i
_AND.2: /and\b/i
_IS.2: /is\b/i
_NULL.2: /null\b/i
_NOT.2: /not\b/i
_BETWEEN.2: /between\b/i
_IN.2: /in\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
CONTAINS.2: /contains\b/i
STARTSWITH.2: /startswith\b/i
ENDSWITH.2: /endswith\b/i
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(?:''|[^'])*'/
DOUBLE.2: /(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![A-Za-z0-9_$.])/
LONG.1: /(?:0|[1-9][0-9]*)[lL]?(?![A-Za-z0-9_$.])/

%ignore /[ \t\n\r\f]+/
%ignore /--[^\n\r]*/
%ignore /\/\*(?:[^*]|\*(?!\/))*\*\//
"""
_DOUBLE_LEAST, _DOUBLE_MAX = 4.9e-324, 1.7976931348623157e308


class Selector:
    """A compiled expression."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def matches(self, get: Get) -> bool:
        """Return whether a message matches; `get` returns a property of it, or None."""
        try:
            return self._compute(get) is True
        except NoMatch:
            return False


def parse(text: str) -> Selector:
    """Compile an expression.  ILLEGAL_FILTER if it is not valid."""
    if len(text) > FILTER_EXPRESSION_MAX:
        raise _illegal(
            f"{len(text)} characters; at most {FILTER_EXPRESSION_MAX} are allowed",
            f"{FILTER_EXPRESSION_MAX} characters",
        )
    return _parse(text)


@lru_cache(maxsize=128)
def _parse(text: str) -> Selector:
    _check_depth(text)
    try:
        node = _COMPILER.transform(_PARSER.parse(text))
    except VisitError as error:
        raise _illegal(str(error.orig_exc)) from None
    except UnexpectedInput as error:
        raise _illegal(_unexpected(error)) from None
    try:
        return Selector(conditions.condition(node).compute)
    except ValueError as error:
        raise _illegal(str(error)) from None


def _unexpected(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedToken):
        what = "the end" if error.token.type == "$END" else repr(str(error.token)[:40])
    else:
        what = repr(error.char) if isinstance(error, UnexpectedCharacters) else "something"
    return f"{what} at line {error.line}, column {error.column} is not expected there"


def _check_depth(text: str) -> None:
    """Limit the depth of an expression: each level is a call, in compilation and in evaluation."""
    words = re.findall(r"'(?:''|[^'])*'|[(+-]|\b(?:not|and|or)\b|[=<>]+", text, re.IGNORECASE)
    depth = sum(not word.startswith("'") for word in words)
    if depth > SQL_DEPTH_MAX:
        raise _illegal(
            f"{depth} operators and parentheses; at most {SQL_DEPTH_MAX} are allowed",
            f"{SQL_DEPTH_MAX} operators",
        )


def _illegal(why: str, limit: str = "") -> HorologError:
    return refused("filter_expression", f"SQL92: {why[:200]}", limit, code=ErrorCode.ILLEGAL_FILTER)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


class _Compiler(Transformer[Token, Node]):
    """Translates rules of the grammar into nodes."""

    def text(self, items: list[Any]) -> Node:
        return conditions.constant(_unquoted(items[0]))

    def long(self, items: list[Any]) -> Node:
        value = int(items[0].rstrip("lL"))
        if value > LONG_MAX + 1:
            raise ValueError(f"{value} is too large")
        return conditions.constant(value)

    def double(self, items: list[Any]) -> Node:
        value = float(items[0])
        if not _DOUBLE_LEAST <= value <= _DOUBLE_MAX:
            raise ValueError(f"{items[0]} cannot be told from 0, or is too large")
        return conditions.constant(value)

    def true(self, _: list[Any]) -> Node:
        return conditions.constant(True)

    def false(self, _: list[Any]) -> Node:
        return conditions.constant(False)

    def null(self, _: list[Any]) -> Node:
        return conditions.constant(None)

    def name(self, items: list[Any]) -> Node:
        name = str(items[0])
        return Node(lambda get: get(name), is_name=True)

    def plus(self, items: list[Any]) -> Node:
        node: Node = items[0]
        return node

    def minus(self, items: list[Any]) -> Node:
        inner = items[0].compute

        def compute(get: Get) -> Value:
            value = inner(get)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return -value if is_number else None

        return Node(compute)

    def negated(self, items: list[Any]) -> Node:
        return conditions.negation(items[0])

    def both(self, items: list[Any]) -> Node:
        return conditions.both(*items)

    def either(self, items: list[Any]) -> Node:
        return conditions.either(*items)

    def equal(self, items: list[Any]) -> Node:
        return conditions.checked_equal(*items)

    def unequal(self, items: list[Any]) -> Node:
        return conditions.negation(conditions.checked_equal(*items))

    def is_null(self, items: list[Any]) -> Node:
        return conditions.equal(items[0], conditions.constant(None))

    def is_not_null(self, items: list[Any]) -> Node:
        return conditions.negation(conditions.equal(items[0], conditions.constant(None)))

    def above(self, items: list[Any]) -> Node:
        left, right = items
        return conditions.ordered(left, right, operator.gt)

    def at_least(self, items: list[Any]) -> Node:
        left, right = items
        return conditions.ordered(left, right, operator.ge)

    def below(self, items: list[Any]) -> Node:
        left, right = items
        return conditions.ordered(left, right, operator.lt)

    def at_most(self, items: list[Any]) -> Node:
        left, right = items
        return conditions.ordered(left, right, operator.le)

    def between(self, items: list[Any]) -> Node:
        value, low, high = items
        both = conditions.both(
            conditions.ordered(value, low, operator.ge),
            conditions.ordered(value, high, operator.le),
        )
        if low.is_constant and high.is_constant and low.value > high.value:
            raise ValueError(f"BETWEEN {low.value} AND {high.value}: the first must not be greater")
        return both

    def not_between(self, items: list[Any]) -> Node:
        value, low, high = items
        return conditions.either(
            conditions.ordered(value, low, operator.lt),
            conditions.ordered(value, high, operator.gt),
        )

    def among(self, items: list[Any]) -> Node:
        return conditions.among(items[0], map(_unquoted, items[1:]), wanted=True)

    def not_among(self, items: list[Any]) -> Node:
        return conditions.among(items[0], map(_unquoted, items[1:]), wanted=False)

    def part(self, items: list[Any]) -> Node:
        node, kind, text = items
        return conditions.part(node, kind.type, _unquoted(text), wanted=True)

    def not_part(self, items: list[Any]) -> Node:
        node, kind, text = items
        return conditions.part(node, kind.type, _unquoted(text), wanted=False)


_PARSER = Lark(_GRAMMAR, parser="lalr", lexer="contextual")
_COMPILER = _Compiler()
