"""`import ftnn` is quick: it brings in torch, and little else."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

HEAVY = {"sympy", "scipy", "numba", "llvmlite", "sklearn", "matplotlib", "pandas", "typer", "rich", "mpmath"}


@cache
def loaded_by(statement: str) -> set[str]:
    """The top-level modules in a fresh interpreter after a statement."""
    names = "sorted({name.partition('.')[0] for name in sys.modules})"
    program = f"{statement}\nimport json, sys\nprint(json.dumps({names}), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(result.stderr))


def test_importing_ftnn_loads_nothing_heavy_that_torch_does_not():
    assert not (loaded_by("import ftnn") - loaded_by("import torch")) & HEAVY


def test_the_catalogue_is_shown_without_symbols_and_kernels():
    found = loaded_by("from ftnn.cli import app; app(['functions'], standalone_mode=False)")
    assert not (found - loaded_by("import torch")) & (HEAVY - {"typer", "rich"})


def test_importing_ftnn_does_not_load_torch_before_it_is_needed():
    assert "torch" not in loaded_by("import ftnn; ftnn.catalogue['F12']; ftnn.training.Settings")
    assert "torch" in loaded_by("import ftnn; ftnn.nn.Transfer")


def test_every_name_of_the_package_is_there():
    import ftnn

    for module in (ftnn, ftnn.training):
        for name in dir(module):
            assert getattr(module, name) is not None or name.startswith("__")


def test_a_store_is_listed_and_reported_without_torch(tmp_path: Path):
    made = f"import os; os.chdir({str(tmp_path)!r}); from ftnn.experiments import Store; Store('a').close()"
    for given in (["store", "list", "--store", "a"], ["report", "--store", "a", "--out", "b.html"]):
        run = f"from ftnn.cli import app; app({given}, standalone_mode=False)"
        assert "torch" not in loaded_by(f"{made}\n{run}")
