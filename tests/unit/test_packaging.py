"""packaging/ says what the project is: lock files, Containerfile and unit against sources and settings."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import tomllib

import typer.main
from packaging_files import PACKAGING, ROOT, environment, instruction, pins, stages, unit_values

from horolog.cli.main import app
from horolog.config import ENVIRONMENT_PREFIX, VIP_PORT, Settings
from horolog.config_sources import load

BUILD, IMAGE = stages()
WORDS = {
    "FROM", "WORKDIR", "ENV", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def test_the_packages_lock_what_everything_else_locks() -> None:
    everything = pins("all.lock")
    assert pins("runtime.lock") <= everything
    assert pins("build.lock") <= everything


def test_the_runtime_lock_has_what_the_wheel_needs_and_no_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {pin.partition("==")[0] for pin in pins("runtime.lock")}
    needed = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert needed <= locked
    extras = {
        re.split(r"[<>=]", each)[0]
        for group in project["optional-dependencies"].values()
        for each in group
    }
    assert not extras & locked


def test_the_containerfile_has_two_stages_of_known_words() -> None:
    for stage in (BUILD, IMAGE):
        assert {word for word, _ in stage} <= WORDS
    image = BUILD[0][1].removesuffix(" AS build")
    assert image == IMAGE[0][1]
    python = re.search(r"python:3\.(\d+)-slim$", image)
    assert python is not None
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert int(python[1]) >= int(wanted.removeprefix(">=3."))


def test_the_containerfile_copies_what_is_there_and_is_sent() -> None:
    """`.dockerignore` sends an engine these sources and no environment, test or document."""
    sent = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    assert sent[0] == "*"
    let_in = [line[1:] for line in sent if line.startswith("!")]
    for copied in instruction(BUILD, "COPY"):
        *sources, _ = shlex.split(copied)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch.fnmatch(source.split("/")[0], name) for name in let_in), source
    assert instruction(IMAGE, "COPY") == ["--from=build /opt/horolog /opt/horolog"]


def test_the_container_runs_as_nobody_special_and_stops_by_sigterm() -> None:
    (user,) = instruction(IMAGE, "USER")
    assert all(part.isdigit() and int(part) > 0 for part in user.split(":"))
    assert user.split(":")[0] in " ".join(instruction(IMAGE, "RUN"))
    assert instruction(IMAGE, "STOPSIGNAL") == ["SIGTERM"]
    assert instruction(IMAGE, "VOLUME") == [environment(IMAGE)["HOROLOG_DATA_DIR"]]


def test_the_container_runs_commands_that_there_are() -> None:
    (entry,), (command,) = instruction(IMAGE, "ENTRYPOINT"), instruction(IMAGE, "CMD")
    (check,) = instruction(IMAGE, "HEALTHCHECK")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert json.loads(entry) == ["horolog"]  # a list: no shell between the signal and the broker
    assert json.loads(command)[0] in commands
    assert json.loads(check.partition(" CMD ")[2])[1] in commands


def test_the_containers_variables_are_settings() -> None:
    ours = {
        name: value
        for name, value in environment(IMAGE).items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    settings = load({}, environment=ours)
    for name in ours:
        assert name.removeprefix(ENVIRONMENT_PREFIX).lower() in Settings.model_fields
    assert not settings.is_local
    ports = {settings.grpc_port, settings.namesrv_port, VIP_PORT, settings.broker_port}
    assert {int(port) for port in instruction(IMAGE, "EXPOSE")[0].split()} == ports


def test_the_unit_and_its_user_agree() -> None:
    (user,) = unit_values("User")
    sysusers = (PACKAGING / "horolog.sysusers").read_text().splitlines()[-1]
    assert shlex.split(sysusers)[:2] == ["u", user]
    (command,) = unit_values("ExecStart")
    data_dir = command.split("--data-dir ")[1]
    (state,) = unit_values("StateDirectory")
    assert data_dir == f"/var/lib/{state}" == shlex.split(sysusers)[4]
