"""`import ftnn` is quick: it brings in torch, and little else."""

import json
import subprocess
import sys

HEAVY = ("sympy", "scipy", "numba", "llvmlite", "sklearn", "matplotlib", "pandas", "typer", "rich", "mpmath")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules in a fresh interpreter after a statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


def test_importing_ftnn_loads_nothing_heavy_that_torch_does_not():
    extra = loaded_by("import ftnn") - loaded_by("import torch")
    assert extra.isdisjoint(HEAVY), sorted(extra & set(HEAVY))


def test_formulas_are_used_without_symbols_or_kernels_being_loaded():
    # SymPy is asked for derivatives as expressions, and not before.
    program = "import ftnn; ftnn.nn.Transfer(3, 2, 'p*sin(q*x + r)').function.plan"
    extra = loaded_by(program) - loaded_by("import torch")
    assert extra.isdisjoint({"sympy", "scipy", "sklearn", "matplotlib"})


def test_the_command_for_functions_draws_no_plots_and_compiles_nothing():
    program = "from ftnn.cli import app; app(['functions'], standalone_mode=False)"
    found = loaded_by(
        f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({program!r})"
    )
    assert found.isdisjoint({"numba", "llvmlite", "sklearn", "matplotlib"} - loaded_by("import torch"))
