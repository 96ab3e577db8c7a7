"""The README is true: its code runs, from top to bottom, and prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

import ftnn
from ftnn.formula._ops import FUNCTIONS

TEXT = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def blocks() -> list[tuple[str, str | None]]:
    """Each Python block, and what a text block right behind it says that it prints."""
    pattern = r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?"
    return [(code, printed or None) for code, printed in re.findall(pattern, TEXT, re.DOTALL | re.MULTILINE)]


def test_every_block_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # where it saves its model
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    found = blocks()
    assert len(found) == TEXT.count("```python") > 8
    for code, expected in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), namespace)
        assert printed.getvalue() == (expected or ""), code


def test_a_text_block_stands_right_behind_code():
    assert TEXT.count("```text") == sum(printed is not None for _, printed in blocks())


def test_the_first_screen_says_what_it_is_and_how_to_run_it():
    screen = "\n".join(TEXT.splitlines()[:30])
    assert "every connection is a trainable function instead of a weight" in screen
    assert "make run" in screen
    assert "make test" in screen
    code, _ = blocks()[0]
    assert len(code.splitlines()) <= 12


def test_every_function_of_the_formula_language_is_named():
    section = TEXT.partition("## Formulas")[2].partition("## ")[0]
    names = set(re.findall(r"\w+", section))
    assert set(FUNCTIONS) <= names


def test_every_public_name_that_is_mentioned_exists():
    for dotted in set(re.findall(r"ftnn(?:\.\w+)+", re.sub(r"model\.ftnn|ftnn\.save wrote", "", TEXT))):
        value: object = ftnn
        for name in dotted.split(".")[1:]:
            value = getattr(value, name)
