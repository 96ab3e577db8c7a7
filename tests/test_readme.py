"""The README's code runs from top to bottom and prints what the README says."""

import re
from pathlib import Path

import pytest

import ftnn
from ftnn.formula._ops import FUNCTIONS
from tests.documents import README, blocks, run

TEXT = README.read_text("utf-8")


@pytest.mark.slow
def test_every_python_block_of_the_readme_prints_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # blocks save files
    assert len(blocks(TEXT)) > 8
    run(README)


def test_the_first_screen_says_what_ftnn_is_and_how_to_install_and_run_it():
    screen = "\n".join(TEXT.splitlines()[:30])
    assert "every connection is a trainable function instead of a weight" in screen
    assert "pip install" in screen
    assert "make run" in screen
    assert "make test" in screen
    code, _ = blocks(TEXT)[0]
    assert len(code.splitlines()) <= 12


def test_the_readme_lists_every_function_of_the_formula_language():
    section = TEXT.partition("## Formulas")[2].partition("## ")[0]
    names = set(re.findall(r"\w+", section))
    assert set(FUNCTIONS) <= names


def test_every_public_name_in_the_readme_exists():
    for dotted in set(re.findall(r"ftnn(?:\.\w+)+", re.sub(r"model\.ftnn|ftnn\.save wrote", "", TEXT))):
        value: object = ftnn
        for name in dotted.split(".")[1:]:
            value = getattr(value, name)
