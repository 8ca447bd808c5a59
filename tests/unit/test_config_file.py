"""`horolog config`: an example made from the settings, and a check that reads a file as a start does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from horolog.cli.config_example import example
from horolog.cli.exits import Exit
from horolog.cli.main import app, run
from horolog.config import Settings
from horolog.config_sources import load


def test_the_example_has_every_setting_and_changes_none(tmp_path: Path) -> None:
    text = example()
    assert tomllib.loads(text) == {}
    file = tmp_path / "horolog.toml"
    file.write_text(text)
    assert load({}, config_file=file, environment={}) == load({}, environment={})
    shown = re.findall(r"^#([a-z_]+) = ", text, re.MULTILINE)
    assert shown == list(Settings.model_fields)
    for line in text.splitlines():
        assert len(line) <= 100 or line.startswith("#message_delay_level"), line


def test_the_defaults_that_it_shows_are_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z_]+ = )", "", example(), flags=re.MULTILINE)
    table = tomllib.loads(text)
    unset = [name for name, setting in Settings.model_fields.items() if setting.default is None]
    for name in unset:
        del table[name]
    file = tmp_path / "horolog.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items()))
    assert load({}, config_file=file, environment={}) == load({}, environment={})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("far_buffer_bytes", "bytes, "),
        ("retention_bytes", "bytes, 0 to 1000000000000000"),
        ("grpc_port", "port, 0 to 65535"),
        ("retention", "duration"),
        ("flush", "one of sync, interval, os"),
        ("tls_cert", "path; not set by default"),
        ("data_dir", "path"),
        ("remoting", "true or false"),
        ("host", "text"),
    ],
)
def test_it_says_units(name: str, kind: str) -> None:
    before = re.search(rf"((?:^# .*\n)+)#{name} = ", example(), re.MULTILINE)
    assert before is not None
    assert f"({kind}" in before[1].replace("\n# ", " ")


def test_a_setting_and_its_flag_are_described_alike() -> None:
    """The help cannot be made from the settings, since help pages load no pydantic."""
    commands: Any = typer.main.get_command(app)
    for option in commands.commands["serve"].params:
        if option.name in Settings.model_fields:
            text = re.sub(r"\s*\[default: .*\]$", "", option.help).removesuffix(".")
            text = re.sub(r"--([a-z-]+)", lambda flag: f"`{flag[1].replace('-', '_')}`", text)
            assert Settings.model_fields[option.name].description == f"{text}."


def test_check_shows_settings_other_than_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "horolog.toml"
    file.write_text('host = "0.0.0.0"\nretention = "7d"\nflush = "os"\n')
    assert run(["config", "check", str(file), "--json"]) == Exit.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"] == {"host": "0.0.0.0", "flush": "os", "retention": "7d"}
    assert [warning.split(":")[0] for warning in answer["warnings"]] == [
        "host is 0.0.0.0 and there is no access file",
        "flush is os",
    ]
    assert run(["config", "check", str(file)]) == Exit.OK
    assert "can be used; 3 settings other than the default" in capsys.readouterr().out


def test_check_warns_of_an_address_that_a_start_here_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file may be meant for another machine."""
    file = tmp_path / "horolog.toml"
    file.write_text('host = "192.0.2.1"\n')
    assert run(["config", "check", str(file)]) == Exit.OK
    assert "warning: host: '192.0.2.1' is no address of this machine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('retention = "soon"', "retention in "),
        ('host = "a b"', "host in "),
        ("colour = 1", "no setting 'colour'"),
        ('tls_cert = "/nowhere.pem"', "--tls-cert: /nowhere.pem"),
        ('tls_key = "/nowhere.pem"', "--tls-key: needs --tls-cert as well"),
        ('access = "/nowhere.toml"', "--access: /nowhere.toml"),
    ],
)
def test_check_refuses_what_a_start_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    file = tmp_path / "horolog.toml"
    file.write_text(text)
    assert run(["config", "check", str(file)]) == Exit.USAGE
    assert complaint in capsys.readouterr().err
