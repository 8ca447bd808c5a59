"""The table of official clients and its page; every behaviour has its code, every exception its reason."""

from __future__ import annotations

from pathlib import Path

from conformance import Conformance
from conformance_table import BEHAVIOURS, CLIENTS, page, runs_of

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "reference" / "clients.md").read_text() == page()


def test_every_behaviour_is_written_and_nothing_else() -> None:
    written = {name.removeprefix("show_") for name in dir(Conformance) if name.startswith("show_")}
    assert written | {"credentials"} == {name.replace("-", "_") for name in BEHAVIOURS}


def test_an_exception_names_a_behaviour_and_says_why() -> None:
    for client in CLIENTS.values():
        assert set(client.excused) <= set(BEHAVIOURS)
        assert all(len(why) > 10 for why in client.excused.values())


def test_every_client_has_a_module_that_runs_it() -> None:
    modules = [path.read_text() for path in (ROOT / "tests" / "clients").glob("test_*.py")]
    for name in CLIENTS:
        assert [text for text in modules if f'client = "{name}"' in text], name
        assert "normal" in runs_of(name)
