"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "horolog"
OURS = [
    path
    for folder in ("src", "tests", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.name.endswith("_pb2.py")
]
CORE = ("protocol", "broker", "log", "delay", "lake/core", "wheel", "ready")
IMPURE = {
    "asyncio",
    "socket",
    "threading",
    "mmap",
    "os",
    "time",
    "random",
    "logging",
    "grpc",
    "pyspark",
}
FORBIDDEN_NAMES = {"utils", "common", "base", "manager", "helper", "helpers", "util"}
FORBIDDEN_DEFS = {"data", "info", "handle", "process", "manager", "utils"}
# Who may be imported by whom: a package may import itself and what stands here.
MAY_IMPORT = {
    "protocol": set(),
    "storage": set(),
    "access": set(),
    "log": {"protocol", "storage"},
    "delay": {"protocol", "storage", "log"},
    "lake/core": {"protocol", "storage", "log", "delay"},
    "wheel": set(),
    "ready": {"protocol", "log", "storage"},
    "calendar": {"protocol"},
    "broker": {"protocol", "storage", "log", "delay", "lake/core", "wheel", "ready"},
}

# The outer rooms: a package, and what nothing in it imports.  Doors know nothing of HTTP, and the daemon starts no
# jobs; `server.main` alone joins doors and admin API.
MAY_NOT_IMPORT = {
    "server": {"admin", "pipeline", "spark", "cli", "testing"},
    "lake/serve": {"lake/jobs", "admin", "pipeline", "spark", "cli", "testing"},
    "lake/jobs": {"lake/serve", "server", "cli", "testing"},
    "lake/table": {
        "lake/jobs",
        "lake/serve",
        "server",
        "admin",
        "pipeline",
        "spark",
        "cli",
        "testing",
    },
    "admin": {"pipeline", "spark", "cli", "testing"},
    "metrics": {"admin", "pipeline", "spark", "cli", "testing"},
    "backup": {"server", "admin", "pipeline", "spark", "cli", "testing"},
    "verify": {"server", "admin", "pipeline", "spark", "cli", "testing"},
    "pipeline": {"server", "cli", "testing"},
    "spark": {"server", "pipeline", "cli", "testing"},
    "cli": {"testing"},
}
JOINS = {"admin": {SRC / "server" / "main.py"}}


# Rooms that speak to a tier by its protocol (`delay.tier`), and the files in them that say which one it is, or a word
# of users: the state of a message, of an offload, a field of HTTP.
WITHOUT_LAKE = ("admin", "broker", "delay", "protocol", "ready", "server", "wheel")
SAY_LAKE = {
    "admin/adoption_shapes.py",
    "admin/request_shapes.py",
    "broker/shard.py",
    "protocol/pending_commands.py",
    "server/open_broker.py",
}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports, and what it takes from them; not to be changed."""
    found: set[str] = set()
    for node in statements(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            # `from horolog import log` names a package as well as `import horolog.log` does.
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_rooms_that_are_named_here_are_there() -> None:
    """Else the rules about one that was renamed would hold for nothing."""
    named = {*CORE, *MAY_IMPORT, *MAY_NOT_IMPORT, *WITHOUT_LAKE}
    assert [room for room in named if not (SRC / room).is_dir()] == []


def test_core_is_pure() -> None:
    for part in CORE:
        for path in (SRC / part).rglob("*.py"):
            found = {name.split(".")[0] for name in imported(path)} & IMPURE
            assert not found, f"{path} imports {found}"


def test_nobody_outside_imports_private_names() -> None:
    """What is worth a test of its own has a name that says so, and a docstring."""
    for path in OURS:
        for node in statements(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horolog"):
                private = {each.name for each in node.names if each.name.startswith("_")}
                assert private <= {"__version__"}, f"{path} imports {private}"


def test_imports_go_one_way() -> None:
    for part, allowed in MAY_IMPORT.items():
        for path in (SRC / part).rglob("*.py"):
            for name in imported(path):
                first, *parts = name.split(".")
                if first != "horolog" or not parts or not (SRC / parts[0]).is_dir():
                    continue
                inside = "/".join(parts[:2])
                assert {parts[0], inside} & {part, *allowed}, f"{path} imports {name}"


def test_outer_rooms_do_not_know_each_other() -> None:
    for part, forbidden in MAY_NOT_IMPORT.items():
        for path in (SRC / part).rglob("*.py"):
            refused = {name for name in forbidden if path not in JOINS.get(name, ())}
            for name in imported(path):
                parts = name.split(".")
                if parts[0] == "horolog" and len(parts) > 1:
                    rooms = {parts[1], "/".join(parts[1:3])}
                    assert not rooms & refused, f"{path} imports {name}"


def test_nobody_but_the_lake_knows_its_name() -> None:
    for part in WITHOUT_LAKE:
        for path in (SRC / part).rglob("*.py"):
            says = re.search(r"lake", path.read_text(), re.IGNORECASE)
            assert (says is not None) == (str(path.relative_to(SRC)) in SAY_LAKE), path


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that are in it, at any depth; what they are made of is left out, as no function is defined there."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield part
            yield from statements(part)


def faults_of_shape(path: Path) -> Iterator[str]:
    text = path.read_text()
    if (lines := len(text.splitlines())) > 500:
        yield f"{lines} lines"
    module = ast.parse(text)
    if not ast.get_docstring(module):
        yield "no module docstring"
    if path.stem in FORBIDDEN_NAMES:
        yield "its name says nothing"
    for node in statements(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            # Options of a command are declarations, not length: counted from the first statement.
            if node.end_lineno - node.body[0].lineno >= 60:
                yield f"{node.name} has over 60 lines"
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named and node.name in FORBIDDEN_DEFS:
            yield f"{node.name} says nothing"


def test_files_are_small_and_say_what_they_are() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {fault}" for path in OURS for fault in faults_of_shape(path)
    ]
    assert not faults


def test_packages_say_what_they_hold() -> None:
    """A new file gets a line where somebody looks for it."""
    missing = []
    for init in SRC.rglob("__init__.py"):
        folder = init.parent
        docstring = ast.get_docstring(tree(init)) or ""
        for path in folder.iterdir():
            is_part = path.suffix == ".py" or (path / "__init__.py").exists()
            if is_part and path != init and not re.search(rf"\b{path.stem}\b", docstring):
                missing.append(str(path.relative_to(SRC)))
    assert not missing


def test_private_fields_that_tests_set_are_there() -> None:
    """A field that was renamed is set for nothing, and the test passes without its case."""
    sources = "\n".join(path.read_text() for path in OURS if path.is_relative_to(SRC))
    known = set(re.findall(r"\b_\w+", sources))
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in OURS
        if not path.is_relative_to(SRC) and re.search(r"\._\w+ =", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if node.attr.startswith("_") and node.attr not in known
        if ast.unparse(node.value) != "self"
    ]
    assert not missing


def test_tests_do_not_sleep() -> None:
    sleeps = re.compile(r"\bsleep\((?!0\))")
    folders = (ROOT / "tests", ROOT / "examples")
    for path in sorted(p for folder in folders for p in folder.rglob("*.py")):
        if path.is_relative_to(ROOT / "examples") and not path.name.startswith("test_"):
            continue  # an application may sleep
        if path.name != Path(__file__).name:
            assert not sleeps.search(path.read_text()), path


def test_cases_of_a_test_are_named_the_same_in_every_worker() -> None:
    """Two that collected `gzip.compress(…)`, with the second in its header, had different tests, and none ran."""
    changes = re.compile(r"^(time|random|uuid|secrets|os)\.|^(gzip\.compress|id|hash)$")
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for function in ast.walk(tree(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            cases = [each for each in function.decorator_list if "parametrize" in ast.unparse(each)]
            calls = [
                node for each in cases for node in ast.walk(each) if isinstance(node, ast.Call)
            ]
            found += [
                f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
                for call in calls
                if changes.search(name := ast.unparse(call.func))
                and not any(given.arg == "mtime" for given in call.keywords)
            ]
    assert not found, found


def test_directories_of_passed_tests_go_at_once(pytestconfig: pytest.Config) -> None:
    """A broker preallocates 512 MiB: with pytest's own policy a run of all tests left 30 GB, and the disk filled."""
    assert pytestconfig.getini("tmp_path_retention_policy") == "failed"


def test_import_is_light() -> None:
    code = "import sys, horolog; print(sorted({'grpc', 'numpy', 'pyspark', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_repository_speaks_of_itself_alone() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    # The parts are joined here, so that this file does not hold what it forbids.
    words = re.compile(
        "|".join(
            [
                "/wo" + "rk/",
                "/tmp" + "/h",
                "index" + "-url",
                "pypi" + r"\.org",
                "protocol " + "notes",
                "DESI" + r"GN[ ,]",
            ]
        )
    )
    for name in tracked:
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".lock", ".in", ".proto", ""}:
            assert not words.search(path.read_text(errors="replace")), name


# Retired words and what to say instead; docs/glossary.md has the words that are used.
RETIRED = {
    r"(?:\b|_)anew(?:\b|_)": "again; made anew: rebuilt",
    r"(?:\b|_)[Mm]end(?:s|ed|ing)?(?:\b|_)|\bMend(?:ing|Rows|Records)": "repair",
    r"\b(?:lies|lie|stands|stand|comes|goes on|what is|frames?|tail|bytes?|log|cursor|checkpoint) behind\b(?! one\b)"
    r"|\bbehind_\w|_behind\b(?<!leaves_nothing_behind)(?<!files_behind)|\bbehind [=<>]|self\.behind\b": "after",
    r"\bone behind the other\b": "one after another",
    r"\b(?:topic|group|offload|source|stream) numbers?\b": "id",
    r"\b1 (?:files|messages|rows|records|queues|hours|runs)\b": "1 file; see units.counted",
}
SPOKEN = {".py", ".md", ".txt"}


def test_retired_words_stay_away() -> None:
    """In sources, docs, tests and the pages of the root; a word of the list has a better one."""
    for folder in ("src", "docs", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SPOKEN and path != Path(__file__) and "golden" not in path.parts:
                refuse_retired(path)
    for path in ROOT.glob("*.md"):
        refuse_retired(path)


# A docstring that begins so is half a sentence, which only the name above it completes.
HALF_SENTENCES = re.compile(
    r"(?:Of|What of|So many|Likewise|That (?:are|have|of)|As (?:in|it|of|such|that|those|`))\b"
)


def test_docstrings_are_read_without_the_name_above() -> None:
    halves = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in SRC.rglob("*.py")
        if not path.name.endswith("_pb2.py")
        for module in [tree(path)]
        for node in [module, *statements(module)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if HALF_SENTENCES.match(docstring := ast.get_docstring(node) or "")
    ]
    assert not halves


# Names that say nothing of what they hold: an answer, fields, a text, a report, what was known before; and what names
# a thing is its id.  (Fields of files and of HTTP that are called number are texts, not names.)
EMPTY_NAMES = re.compile(
    r"_?told(_|$)|_told(_|$)|^_?(by|topic|group|offload|source|stream)_numbers?$"
)


# A text without these has no such name, and need not be cut into tokens.
MAYBE_EMPTY = re.compile(r"told|(?:by|topic|group|offload|source|stream)_number")


def empty_names(path: Path) -> Iterator[str]:
    if not MAYBE_EMPTY.search(path.read_text()):
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            name = token.string if token.type == tokenize.NAME else ""
            if EMPTY_NAMES.search(name) and not name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}:{token.start[0]}: {name}"


def test_names_say_what_they_hold() -> None:
    found = [name for path in OURS for name in empty_names(path)]
    assert not found


ANY_RETIRED = re.compile("|".join(f"(?:{pattern})" for pattern in RETIRED), re.IGNORECASE)


def refuse_retired(path: Path) -> None:
    text = path.read_text(errors="replace")
    if not ANY_RETIRED.search(text):
        return
    lines = text.splitlines()
    for pattern, instead in RETIRED.items():
        word = re.compile(pattern, re.IGNORECASE)
        found = [(place, line) for place, line in enumerate(lines, 1) if word.search(line)]
        assert not found, f"{path}:{found[0][0]}: {found[0][1].strip()!r}: say {instead!r}"
