"""`import ftnn` is fast: heavy modules are loaded only when needed."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

HEAVY = {"sympy", "scipy", "llvmlite", "sklearn", "matplotlib", "pandas", "typer", "rich", "mpmath"}


@cache
def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a statement loads in a fresh interpreter."""
    names = "sorted({name.partition('.')[0] for name in sys.modules})"
    program = f"{statement}\nimport json, sys\nprint(json.dumps({names}), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(result.stderr))


def test_importing_ftnn_loads_no_heavy_modules_beyond_torch():
    assert not (loaded_by("import ftnn") - loaded_by("import torch")) & HEAVY


def test_listing_the_catalogue_loads_neither_sympy_nor_kernels():
    loaded = loaded_by("from ftnn.cli import app; app(['functions'], standalone_mode=False)")
    assert not (loaded - loaded_by("import torch")) & (HEAVY - {"typer", "rich"})


def test_importing_ftnn_does_not_load_torch():
    assert "torch" not in loaded_by("import ftnn; ftnn.catalogue['F12']; ftnn.training.Settings")
    assert "torch" in loaded_by("import ftnn; ftnn.nn.Transfer")


def test_every_public_name_can_be_imported():
    import ftnn

    for module in (ftnn, ftnn.training):
        for name in dir(module):
            assert getattr(module, name) is not None or name.startswith("__")


def test_listing_and_reporting_a_store_does_not_load_torch(tmp_path: Path):
    setup = f"import os; os.chdir({str(tmp_path)!r}); from ftnn.experiments import Store; Store('a').close()"
    for arguments in (["store", "list", "--store", "a"], ["report", "--store", "a", "--out", "b.html"]):
        run = f"from ftnn.cli import app; app({arguments}, standalone_mode=False)"
        assert "torch" not in loaded_by(f"{setup}\n{run}")
