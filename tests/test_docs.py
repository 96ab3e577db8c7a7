"""The documentation builds without warnings, its code runs, and the names and commands in it exist."""

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ftnn.cli import app
from ftnn.formula._ops import OPS, Op
from tests.documents import PAGES, README, ROOT, blocks, run

LANGUAGE = ROOT / "docs" / "formulas.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; strict: a broken link or a missing docstring target is an error."""
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: MkDocs counts only warnings that it logs.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_a_page_for_each_document(site: Path):
    for page in PAGES:
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file()


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(site: Path):
    loaded = re.compile(
        r"<(?:script|img|iframe|link(?![^>]*rel=\"?canonical))[^>]*(?:src|href)=\"?(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text("utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text("utf-8")), style


@pytest.mark.slow
def test_every_page_of_the_site_can_be_searched(site: Path):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert found >= {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in PAGES}
    assert 'data-md-component="search-query"' in (site / "howto" / "sklearn.html").read_text("utf-8")


@pytest.mark.slow
def test_figures_and_equations_are_part_of_the_page(site: Path):
    paper = (site / "paper.html").read_text("utf-8")
    assert paper.count('<svg xmlns="http://www.w3.org/2000/svg" viewBox') >= 3
    assert paper.count("<math") == (ROOT / "docs" / "paper.md").read_text("utf-8").count("```math")
    assert "--8&lt;--" not in paper


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_every_python_block_of_a_page_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not blocks(page.read_text("utf-8")):
        assert "```python" not in page.read_text("utf-8")
        return
    monkeypatch.chdir(tmp_path)  # blocks save files
    run(page)


def test_only_python_for_a_gpu_is_not_run():
    kinds = {
        page.name: set(re.findall(r"^```(\w+)", page.read_text("utf-8"), re.MULTILINE)) for page in PAGES
    }
    assert kinds.pop("triton.md") == {"console", "py"}
    assert set[str]().union(*kinds.values()) <= {"console", "math", "python", "text"}


def row(op: Op) -> str:
    """An operation's row in the table of the formula language."""
    arguments = "abc"[: op.arity]
    if op.is_callable:
        usage = f"{op.name}({', '.join(arguments)})"
    else:
        usage = f" {op.symbol} ".join(arguments) if op.arity == 2 else f"{op.symbol}{arguments}"
    slopes = "none: a condition" if op.is_comparison else ", ".join(f"`{rule}`" for rule in op.derivative)
    notes = [op.about] if op.about else []
    if op.singular:
        notes.append(f"not finite where `{op.singular}` is 0")
    if op.jump:
        notes.append(f"jumps where `{op.jump}` is 0")
    return f"| `{usage}` | {slopes} | {'; '.join(notes)} |"


def test_the_formula_language_has_every_operation_of_the_table():
    rows = re.findall(
        r"^\| `.*\|$", LANGUAGE.read_text("utf-8").partition("## Every operation")[2], re.MULTILINE
    )
    assert rows == [row(op) for op in OPS.values()]


def test_every_public_name_in_the_documentation_exists():
    for page in PAGES:
        text = page.read_text("utf-8")
        for dotted in set(
            re.findall(r"\bftnn(?:\.[A-Za-z_]\w*)+", re.sub(r"\w+\.ftnn|ftnn\.sqlite", "", text))
        ):
            value: object = importlib.import_module("ftnn")
            for name in dotted.split(".")[1:]:
                if not hasattr(value, name):
                    importlib.import_module(dotted.rpartition(".")[0])
                value = getattr(value, name)


def commands() -> list[tuple[str, str]]:
    """Each `ftnn …` command in a console block, with the name of its document."""
    shown: list[tuple[str, str]] = []
    for page in (README, ROOT / "CONTRIBUTING.md", *PAGES):
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        lines = [line for kind, block in fenced if kind in ("", "console") for line in block.splitlines()]
        shown += [(page.name, line) for line in lines if line.startswith("ftnn ")]
    return shown


def statements() -> list[tuple[str, str]]:
    """Each command in the table of the paper's statements."""
    text = (ROOT / "docs" / "paper.md").read_text("utf-8")
    section = text.partition("\n## Statements, and their commands\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [("paper.md", command) for row in rows for command in re.findall(r"`(ftnn [^`]+)`", row)]


def test_the_documentation_has_commands_to_check():
    assert len(commands()) > 30
    assert len(statements()) > 15


@pytest.mark.parametrize(("page", "line"), [*commands(), *statements()])
def test_every_command_in_the_documentation_is_valid(page: str, line: str):
    _, *arguments = shlex.split(line.split(" > ")[0], comments=True)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    command.make_context(line, arguments)  # raises a usage error for unknown arguments
