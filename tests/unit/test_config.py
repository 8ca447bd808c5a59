"""Settings: where they come from, and that a complaint names what the user typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from horolog.config import Settings
from horolog.config_sources import load, mistyped
from horolog.errors import ErrorCode, HorologError
from horolog.limits import TOML_BYTES_MAX


def test_defaults() -> None:
    """What `horolog serve` runs with when nothing is said."""
    settings = load({}, environment={})
    assert (settings.grpc_port, settings.admin_port) == (8081, 8090)
    assert (settings.broker_port, settings.namesrv_port) == (10911, 9876)
    assert settings.data_dir == Path("horolog-data")
    assert (settings.flush, settings.clock) == ("sync", "system")
    assert (settings.broker_name, settings.cluster_name) == ("broker-a", "DefaultCluster")
    assert settings.auto_create_topics is False
    assert settings.levels.delays_ms[17] == 7_200_000


def test_flag_before_environment_before_file(tmp_path: Path) -> None:
    """The order of sources."""
    file = tmp_path / "horolog.toml"
    file.write_text('grpc_port = 1\nadmin_port = 2\nflush = "os"\n')
    settings = load(
        {"grpc_port": 7, "admin_port": None},
        config_file=file,
        environment={"HOROLOG_GRPC_PORT": "5", "HOROLOG_ADMIN_PORT": "6"},
    )
    assert (settings.grpc_port, settings.admin_port, settings.flush) == (7, 6, "os")


def test_a_mistyped_variable_is_noticed() -> None:
    others = ["ADMIN", "ACCESS_KEY", "SECRET_KEY", "SERVICE_HOST", "SERVICE_PORT_GRPC", "PORT"]
    others += ["PORT_8081_TCP", "PORT_8081_TCP_ADDR", "INSTALLED", "ACCESS", "TLS_KEY"]
    known = {f"HOROLOG_{name}": "x" for name in others}
    wrong = {"HOROLOG_ACESS": "/etc/access.toml", "HOROLOG_RETENTION_DAYS": "7", "ACESS": "x"}
    assert mistyped(known) == {}
    assert mistyped(known | wrong) == {
        "HOROLOG_ACESS": "HOROLOG_ACCESS",
        "HOROLOG_RETENTION_DAYS": "HOROLOG_RETENTION_BYTES",
    }


def test_settings_are_frozen() -> None:
    """Nothing changes them at run time."""
    with pytest.raises(ValidationError):
        load({}, environment={}).grpc_port = 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"grpc_port": 8090}, "--grpc-port: 8090 is refused: --admin-port is the same port"),
        ({"admin_port": 8081}, "--admin-port: 8081 is refused: --grpc-port is the same port"),
        (
            {"grpc_port": 9, "admin_port": 9},
            "--grpc-port: 9 is refused: --admin-port is the same port",
        ),
        (
            {"broker_port": 9876},
            "--broker-port: 9876 is refused: --namesrv-port is the same port",
        ),
        ({"grpc_port": 8090, "host": "0.0.0.0"}, "--grpc-port: 8090 is refused"),
    ],
)
def test_a_port_that_two_want(flags: dict[str, object], message: str) -> None:
    """Both are named, the one that was typed first."""
    with pytest.raises(HorologError) as caught:
        load(flags, environment={})
    assert caught.value.code is ErrorCode.CONFIG
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "flags",
    [
        {"grpc_port": 0, "admin_port": 0, "broker_port": 0},
        {"grpc_port": 8090, "host": "192.0.2.1"},  # the admin port is 127.0.0.1's
        {"broker_port": 9876, "remoting": False},
    ],
)
def test_ports_that_go_together(flags: dict[str, object]) -> None:
    """0 is another one each time, and what is not opened is in nobody's way."""
    assert load(flags, environment={}).grpc_port == flags.get("grpc_port", 8081)


@pytest.mark.parametrize(
    ("flags", "environment", "field"),
    [
        ({"grpc_port": 70_000}, {}, "--grpc-port"),
        ({"admin_port": -1}, {}, "--admin-port"),
        ({"flush": "never"}, {}, "--flush"),
        ({"clock": "sundial"}, {}, "--clock"),
        ({"host": " "}, {}, "--host"),
        ({"host": "a b"}, {}, "--host"),
        ({"host": "127.0.0.1:8081"}, {}, "--host"),
        ({"host": "\ud800"}, {}, "--host"),
        ({}, {"HOROLOG_HOST": "[::1]"}, "HOROLOG_HOST"),
        ({"retention_bytes": 99_999_999_999_999_999_999}, {}, "--retention-bytes"),
        ({"broker_name": "two words"}, {}, "--broker-name"),
        ({"message_delay_level": "1s 5s 1y"}, {}, "--message-delay-level"),
        ({"message_delay_level": "1s  5s"}, {}, "--message-delay-level"),
        ({}, {"HOROLOG_MESSAGE_DELAY_LEVEL": ""}, "HOROLOG_MESSAGE_DELAY_LEVEL"),
        ({}, {"HOROLOG_GRPC_PORT": "eighty"}, "HOROLOG_GRPC_PORT"),
        ({}, {"HOROLOG_LOG_LEVEL": "loud"}, "HOROLOG_LOG_LEVEL"),
        ({}, {"HOROLOG_DATA_DIR": ""}, "HOROLOG_DATA_DIR"),
        ({}, {"HOROLOG_ACCESS": ""}, "HOROLOG_ACCESS"),
    ],
)
def test_a_bad_value_names_its_source(
    flags: dict[str, object], environment: dict[str, str], field: str
) -> None:
    """The flag or the variable, in the message too."""
    with pytest.raises(HorologError) as caught:
        load(flags, environment=environment)
    assert caught.value.code is ErrorCode.CONFIG
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


def test_every_number_has_a_lowest_and_a_highest_value() -> None:
    """Both are named by the refusal."""
    numbers = [name for name, field in Settings.model_fields.items() if field.annotation is int]
    assert "retention_bytes" in numbers
    for name in numbers:
        for given in (-(10**20), 10**20):
            with pytest.raises(HorologError, match=r"equal to -?\d+$"):
                load({name: given}, environment={})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("grpc_port = 99999", "grpc_port in "),
        ("retention_bytes = true", "true is refused: a number is needed"),
        ("grpc_port = false", "false is refused: a number is needed"),
        ("colour = 1", "no setting 'colour'"),
        ("grpc_port = ", "is not TOML"),
        ("host = " + "[" * 9_000, "is not TOML"),
        pytest.param("connections = 1" + "0" * 5_000, "is not TOML: ", id="5 000 digits"),
        pytest.param("flush = [0x1" + "0" * 5_000 + "]", "has more than 64 bits", id="hexadecimal"),
        pytest.param("# " + "x" * TOML_BYTES_MAX, f"{TOML_BYTES_MAX} bytes are", id="too large"),
        ('data_dir = "a\\u0000"', "it has a NUL character"),
        ('host = "a\\u0000"', "it has a NUL character"),
    ],
)
def test_a_bad_file_is_explained(tmp_path: Path, content: str, message: str) -> None:
    """Key and file, unknown keys, and what is no TOML."""
    file = tmp_path / "horolog.toml"
    file.write_text(content)
    with pytest.raises(HorologError) as caught:
        load({}, config_file=file, environment={})
    assert message in caught.value.message
    assert str(file) in caught.value.message


def test_a_refusal_shows_the_beginning_of_a_long_value(tmp_path: Path) -> None:
    file = tmp_path / "horolog.toml"
    for content in (f'flush = "{"x" * 100_000}"', f"{'y' * 100_000} = 1"):
        file.write_text(content)
        with pytest.raises(HorologError, match="…") as caught:
            load({}, config_file=file, environment={})
        assert len(caught.value.message) < 2_000


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(HorologError, match="--config: /dev/zero is too large: 4194304 bytes"):
        load({}, config_file=Path("/dev/zero"), environment={})


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """As editors on Windows write it; the lines end in their way too."""
    file = tmp_path / "horolog.toml"
    file.write_bytes(b"\xef\xbb\xbfgrpc_port = 1234\r\nhost = '0.0.0.0'\r\n")
    settings = load({}, config_file=file, environment={})
    assert (settings.grpc_port, settings.host) == (1234, "0.0.0.0")


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    """--config is named."""
    with pytest.raises(HorologError, match=r"--config: cannot read .*No such file"):
        load({}, config_file=tmp_path / "none.toml", environment={})
