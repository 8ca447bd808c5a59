"""Identities and their rights: patterns, the file that names them, and what is said of a bad one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.access_files import ACCESS, access_file

from horolog.access.exposed import tighter_mode
from horolog.access.file import read_access
from horolog.access.guard import Guard
from horolog.access.rules import ADMIN, Right, need_of_group, need_of_topic
from horolog.errors import ErrorCode, HorologError
from horolog.limits import TOML_BYTES_MAX


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("orders", Right.PUB | Right.SUB),
        ("orders2", Right.DENY),
        ("out-a", Right.PUB),
        ("in-a", Right.SUB),
        ("in-secret", Right.DENY),
        ("in-secrets", Right.SUB),
        ("else", Right.DENY),
    ],
)
def test_the_closest_pattern_decides(tmp_path: Path, name: str, right: int) -> None:
    app = read_access(access_file(tmp_path)).identities["app"]
    assert app.topics.of(name) == right
    assert app.topics.of(name) == right  # kept, and the same


def test_topics_of_a_group_go_by_the_group(tmp_path: Path) -> None:
    app = read_access(access_file(tmp_path)).identities["app"]
    app.check([need_of_topic("%RETRY%app-1", Right.PUB), need_of_topic("%DLQ%app-1", Right.SUB)])
    with pytest.raises(HorologError, match=r"Group:other, SUB is not granted"):
        app.check([need_of_topic("%DLQ%other", Right.SUB)])


def test_a_refusal_names_who_and_what(tmp_path: Path) -> None:
    app = read_access(access_file(tmp_path)).identities["app"]
    with pytest.raises(HorologError) as met:
        app.check([need_of_group("app-1"), need_of_topic("in-a", Right.PUB)])
    assert met.value.code is ErrorCode.FORBIDDEN
    assert met.value.field == "topic"
    assert "User:app has no permission to access Topic:in-a, PUB" in met.value.message
    with pytest.raises(HorologError, match="administrator"):
        app.check(ADMIN)
    read_access(access_file(tmp_path)).identities["operator"].check([*ADMIN, need_of_group("any")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "identities: none"),
        ("nobody = 1\n", "nobody: unknown"),
        ("[identities.a]\n", r"identities.a.secret: give either"),
        ('[identities.a]\nsecret = "short"\n', "identities.a.secret: at least 8 characters"),
        ('[identities.a]\nsecret = "long-enough"\nrights = 1\n', "identities.a.rights: unknown"),
        ('[identities.a]\nsecret = "long-enough"\nadmin = 1\n', "identities.a.admin: true or"),
        (
            '[identities.a]\nsecret = "long-enough"\ntopics = { "a*b" = "PUB" }\n',
            r"identities.a.topics.a\*b: a \* is allowed at the end only",
        ),
        (
            '[identities.a]\nsecret = "long-enough"\ngroups = { "g" = "WRITE" }\n',
            "identities.a.groups.g: 'WRITE' is no right",
        ),
        (
            '[identities.a]\nsecret = "long-enough"\naddresses = ["10.0.0.1/8"]\n',
            "identities.a.addresses: 10.0.0.1/8",
        ),
        ('[identities.a]\nsecret_file = "gone"\n', "secret_file: gone cannot be read"),
        ('[identities.a]\nsecret_file = "a\\u0000"\n', "secret_file: a\0 cannot be read: no text"),
        ('[identities."a/b"]\nsecret = "long-enough"\n', "letters, digits"),
        ("[identities", "is not TOML"),
        ("x = " + "[" * 9_000, "is not TOML"),
        pytest.param("x = 1" + "0" * 5_000, "is not TOML", id="5 000 digits"),
        pytest.param("x = 0x1" + "0" * 5_000, "more than 64 bits", id="hexadecimal"),
        pytest.param("#" * (TOML_BYTES_MAX + 1), "is too large: 4194304 bytes", id="too large"),
        (
            'unsigned_routes = "yes"\n[identities.a]\nsecret = "long-enough"\n',
            "unsigned_routes: true or",
        ),
        (
            '[identities.a]\nsecret = "long-enough"\ntoken = "the-same-token"\n'
            '[identities.b]\nsecret = "long-enough"\ntoken = "the-same-token"\n',
            "identities.b.token: another one has it too",
        ),
    ],
)
def test_a_bad_file_is_refused_with_the_field_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HorologError, match=said) as met:
        read_access(access_file(tmp_path, text))
    assert (met.value.code, met.value.field) == (ErrorCode.CONFIG, "--access")
    assert "long-enough" not in met.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HorologError, match="cannot be read"):
        read_access(tmp_path / "none.toml")


def test_a_secret_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = access_file(tmp_path, '[identities.a]\nsecret_file = "a.secret"\n')
    (tmp_path / "a.secret").write_text("from-a-file\n")
    assert read_access(path).identities["a"].secret == b"from-a-file"


def test_files_that_begin_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """As editors on Windows write it; the mark is no part of the secret."""
    path = access_file(tmp_path, '\ufeff[identities.a]\nsecret_file = "a.secret"\n')
    (tmp_path / "a.secret").write_bytes(b"\xef\xbb\xbffrom-a-file\r\n")
    assert read_access(path).identities["a"].secret == b"from-a-file"


def test_reload_takes_a_good_file_and_keeps_the_old_one_of_a_bad_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = access_file(tmp_path)
    guard = Guard(path)
    guard.identity_of_authorization("Bearer operator-token", "127.0.0.1")
    access_file(tmp_path, "[identities.a]\nsecret = 'x'\n")
    with pytest.raises(HorologError, match="at least 8"):
        guard.reload()
    guard.identity_of_authorization("Bearer operator-token", "127.0.0.1")
    access_file(tmp_path, ACCESS.replace("operator-token", "another-token"))
    guard.reload()
    with pytest.raises(HorologError, match="nobody's"):
        guard.identity_of_authorization("Bearer operator-token", "127.0.0.1")
    assert "can be read by other users" not in caplog.text
    path.chmod(0o644)
    guard.reload()
    assert f"{path} can be read by other users of this machine: chmod 600" in caplog.text


def test_a_file_of_root_that_is_read_by_its_group_is_no_danger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the guide says for systemd: `root:horolog`, 640.  With 600 the broker could not read it."""
    path = access_file(tmp_path)
    for mode, mine, roots in ((0o600, "", ""), (0o640, "600", ""), (0o644, "600", "640")):
        path.chmod(mode)
        assert tighter_mode(path) == mine
        with monkeypatch.context() as under:
            under.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
            assert tighter_mode(path) == roots
    assert tighter_mode(tmp_path / "none") == ""


def test_a_secret_in_a_file_of_its_own_is_looked_at_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = access_file(tmp_path, "[identities.a]\nsecret_file = 'a.secret'\nadmin = true\n")
    secret = tmp_path / "a.secret"
    secret.write_text("long enough\n")
    secret.chmod(0o644)
    Guard(path)
    assert caplog.messages == [f"{secret} can be read by other users of this machine: chmod 600"]


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    """Nobody writes to it, so reading it would hold up the broker for ever."""
    path = access_file(tmp_path)
    guard = Guard(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(HorologError, match="is not a regular file") as caught:
        guard.reload()
    assert (caught.value.code, caught.value.field) == (ErrorCode.CONFIG, "--access")
    guard.identity_of_authorization("Bearer operator-token", "127.0.0.1")
    os.mkfifo(tmp_path / "a.secret")
    path.unlink()
    access_file(tmp_path, '[identities.a]\nsecret_file = "a.secret"\n')
    with pytest.raises(HorologError, match=r"a\.secret is not a regular file"):
        guard.reload()


def test_no_secret_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not by `repr`, not in a refusal, not in the log."""
    caplog.set_level("DEBUG")
    guard = Guard(access_file(tmp_path))
    identity = guard.identity_of_authorization("Bearer operator-token", "127.0.0.1")
    assert "secret" not in repr(identity)
    with pytest.raises(HorologError) as met:
        guard.identity_of_authorization("Basic YXBwOm5vdC1oaXMtc2VjcmV0", "127.0.0.1")
    assert "secret'" not in met.value.message
    assert "not-his-secret" not in met.value.message
    assert "-secret" not in caplog.text
    assert "token" not in caplog.text


def test_names_that_are_too_long_for_any_topic_are_not_kept(tmp_path: Path) -> None:
    """A request without a key may have a name of 1 MB, and thousands of needs of topics are kept."""
    topics = read_access(access_file(tmp_path)).identities["app"].topics
    long_name = "in-" + "a" * 1_000
    assert topics.of(long_name) == Right.SUB
    assert long_name not in topics._decided
    assert need_of_topic("in-a", Right.SUB) is need_of_topic("in-a", Right.SUB)
    assert need_of_topic(long_name, Right.SUB) is not need_of_topic(long_name, Right.SUB)
    assert need_of_group(long_name) is not need_of_group(long_name)
