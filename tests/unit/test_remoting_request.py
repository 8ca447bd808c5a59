"""Fields of remoting requests, and the status of each error."""

import re

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import REMOTING_CONTENT_MAX
from horolog.protocol.remoting.codes import Status, status_of
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import content, flag, integer, text

ASKED = Frame(10, fields={"a": "7", "b": "true", "c": "1", "d": "x", "e": "", "big": "9" * 30})


def test_fields_are_read_as_what_they_are():
    assert text(ASKED, "d") == "x"
    assert text(ASKED, "nothing", "default") == "default"
    assert integer(ASKED, "a") == 7
    assert integer(ASKED, "e", 3) == 3
    assert integer(ASKED._replace(fields={"a": "-9223372036854775808"}), "a") == -(1 << 63)
    assert flag(ASKED, "b") and flag(ASKED, "c") and not flag(ASKED, "nothing")
    assert content(Frame(34, body=b'{"clientID":"x"}\n')) == {"clientID": "x"}


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (
            b'{"a":"\xd6","b":["\\ud83d\xff",["\xff"]]}',
            {"a": "\ufffd", "b": ["?\ufffd", ["\ufffd"]]},
        ),
        (b'{"a":"\x01\t"}', {"a": "\x01\t"}),
        (
            b'{"a":"\xff","b":[-9223372036854775808,18446744073709551616,1.5]}',
            {"a": "\ufffd", "b": [-(1 << 63), 2.0**64, 1.5]},
        ),
    ],
)
def test_a_body_in_json_is_read_as_java_reads_it(body, read):
    assert content(Frame(34, body=body)) == read


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\xff"',
        b'{"a":"\xff","b":1e999}',
        b'{"a":"\xff","b":Infinity}',
        b'{"a":"\xff","b":' + b"[" * 200_000,
        b'{"a":"\xff' + b"x" * 300_000 + b'"}',
    ],
)
def test_a_body_that_is_no_json_is_refused(body):
    with pytest.raises(HorologError, match="body: no JSON object"):
        content(Frame(34, body=body))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda: text(ASKED, "nothing"), "nothing: missing"),
        (lambda: integer(ASKED, "nothing"), "nothing: missing"),
        (lambda: integer(ASKED, "d"), "d: 'x' is no number"),
        (lambda: integer(ASKED, "big"), "is no number"),
        (lambda: integer(ASKED, "a", low=8, high=9), "a: 7; 8 to 9 are allowed"),
        (lambda: flag(ASKED, "d"), "d: 'x' is neither true nor false"),
        (lambda: content(Frame(34, body=b"[]")), "body: no JSON object"),
        (lambda: content(Frame(34)), "body: no JSON object"),
        (
            lambda: content(Frame(34, body=b"{".ljust(REMOTING_CONTENT_MAX + 1))),
            "body: 1048577 bytes; at most 1048576 are allowed",
        ),
    ],
)
def test_what_is_wrong_is_named(read, expected):
    with pytest.raises(HorologError, match=expected) as caught:
        read()
    assert caught.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("text", ["1_0", " 1", "1 ", "+1", "--1", "-", "1.0", "0x1", "١", "²"])
def test_numbers_are_ascii_digits(text):
    refused = f"a: {re.escape(repr(text))} is no number"
    with pytest.raises(HorologError, match=refused):
        integer(ASKED._replace(fields={"a": text}), "a")


def test_every_error_has_a_status():
    assert status_of(ErrorCode.TOPIC_NOT_FOUND) is Status.TOPIC_NOT_EXIST
    assert status_of(ErrorCode.INTERNAL) is Status.SYSTEM_ERROR
    assert Status.SUCCESS not in {status_of(code) for code in ErrorCode}
