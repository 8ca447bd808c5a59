"""What pages import from horolog is there: a module that was renamed takes its guide with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def imports(page: Path) -> Iterator[ast.ImportFrom]:
    """`from horolog… import …` of the page's Python."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horolog"):
                yield node


def names_of(module: str) -> set[str]:
    """What can be imported from a module; read, because not every one is installed everywhere."""
    place = ROOT / "src" / Path(*module.split("."))
    inside = {each.stem for each in place.glob("*.py")} | {
        each.parent.name for each in place.glob("*/__init__.py")
    }
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            inside |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inside |= {target.id for target in targets if isinstance(target, ast.Name)}
    return inside


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(imports(page))], ids=lambda page: page.name
)
def test_what_a_page_imports_is_there(page: Path) -> None:
    for node in imports(page):
        assert node.module is not None
        missing = {alias.name for alias in node.names} - names_of(node.module)
        assert not missing, f"{page.name}: {node.module} has no {missing}"
