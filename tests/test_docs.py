"""The documentation is true: it is built without a warning, its code runs, and it names what there is."""

import importlib
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
    """The site as MkDocs makes it; strict: a broken link or a missing docstring target is an error."""
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: a warning that is not logged is not counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_a_page_for_each_document(site: Path):
    for page in PAGES:
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file()


def test_the_site_loads_nothing_from_elsewhere(site: Path):
    loaded = re.compile(
        r"<(?:script|img|iframe|link(?![^>]*rel=\"?canonical))[^>]*(?:src|href)=\"?(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text("utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text("utf-8")), style


def test_figures_and_equations_are_in_the_page(site: Path):
    paper = (site / "paper.html").read_text("utf-8")
    assert paper.count('<svg xmlns="http://www.w3.org/2000/svg" viewBox') >= 3
    assert paper.count("<math") == (ROOT / "docs" / "paper.md").read_text("utf-8").count("```math")
    assert "--8&lt;--" not in paper


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_every_block_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not blocks(page.read_text("utf-8")):
        assert "```python" not in page.read_text("utf-8")
        return
    monkeypatch.chdir(tmp_path)  # where it saves what it saves
    run(page)


def test_python_that_is_not_run_is_for_a_gpu():
    kinds = {
        page.name: set(re.findall(r"^```(\w+)", page.read_text("utf-8"), re.MULTILINE)) for page in PAGES
    }
    assert kinds.pop("triton.md") == {"console", "py"}
    assert set[str]().union(*kinds.values()) <= {"console", "math", "python", "text"}


def row(op: Op) -> str:
    """The operation as the table of the formula language has it."""
    arguments = "abc"[: op.arity]
    if op.is_callable:
        written = f"{op.name}({', '.join(arguments)})"
    else:
        written = f" {op.symbol} ".join(arguments) if op.arity == 2 else f"{op.symbol}{arguments}"
    slopes = "none: a condition" if op.is_comparison else ", ".join(f"`{rule}`" for rule in op.derivative)
    notes = [op.about] if op.about else []
    if op.singular:
        notes.append(f"not finite where `{op.singular}` is 0")
    if op.jump:
        notes.append(f"jumps where `{op.jump}` is 0")
    return f"| `{written}` | {slopes} | {'; '.join(notes)} |"


def test_the_formula_language_has_every_operation_of_the_table():
    rows = re.findall(
        r"^\| `.*\|$", LANGUAGE.read_text("utf-8").partition("## Every operation")[2], re.MULTILINE
    )
    assert rows == [row(op) for op in OPS.values()]


def test_every_public_name_that_is_mentioned_exists():
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
    """Each `ftnn …` of a console block, with the document that it stands in."""
    found: list[tuple[str, str]] = []
    for page in (README, ROOT / "CONTRIBUTING.md", *PAGES):
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        lines = [line for kind, block in fenced if kind in ("", "console") for line in block.splitlines()]
        found += [(page.name, line) for line in lines if line.startswith("ftnn ")]
    return found


def test_there_are_commands_to_check():
    assert len(commands()) > 30


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_that_is_shown_can_be_given(page: str, line: str):
    _, *arguments = shlex.split(line.split(" > ")[0], comments=True)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    command.make_context(line, arguments)  # raises a usage error for what the command does not take
