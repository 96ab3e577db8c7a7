"""Writes docs/compatibility.md from what the checks find now: `python -m tests.compat.table`."""

from __future__ import annotations

import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

from ftnn import catalogue
from tests.compat.cases import NAMES
from tests.compat.checks import COLUMNS, applies

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

HEAD = """# What works with what

Made by `python -m tests.compat.table`, which runs every check below for every function of the catalogue; not
to be edited by hand. The versions: {versions}.

{table}

✓: the answer was right. ✗: it was not, or there was none. –: there is no such thing.

"""

ABOUT = """\
- **eager**: forward and backward in float64 and float32, `backend="auto"`, against NumPy in float64.
- **compile**: `torch.compile(fullgraph=True, dynamic=True)` with Inductor, forward and backward, for `"auto"`
  and `"reference"`; one graph for all batch sizes. `Network` and `Partial` compile as well. A `Memory` is
  unrolled over time, so another length is compiled anew.
- **export**: `torch.export.export` with a dynamic batch size; only `aten` operators are left. With
  `strict=True`, `ftnn::contract` stays until `run_decompositions()` takes it apart. An exported graph
  evaluates each connection's function as it is written, and holds arrays over (batch, in, out) unless the
  runtime fuses them. Its gradients are those of its operators: what is decreed (`rect_ada`) is not exported.
- **ONNX**: `torch.onnx.export(dynamo=True)` with a dynamic batch size, in onnxruntime to 1e-5 of torch; only
  ONNX's own operators. Needs `ftnn[onnx]`.
- **bf16**: under `torch.autocast("cpu", torch.bfloat16)` the output has the dtype that `nn.Linear` would
  give, bfloat16; functions are evaluated and summed in float32 and rounded once, and the gradients of float32
  parameters are those of float32. Then a module of bfloat16 parameters.
- **vmap**: `torch.func.vmap`, and gradients of every sample by `vmap(grad(…))` with `functional_call`.
- **second derivative**: by autograd twice and by `torch.func.hessian`, along a direction of inputs and
  parameters, against differences of NumPy's values.
- **DDP**: two processes with DistributedDataParallel over gloo, against one process with the joint batch.
- **Triton interpreter**: the kernels for GPUs, forward and backward, on the CPU. `Memory` has none: it takes
  the reference, which `torch.compile` fuses.
"""


def failures(column: str) -> dict[str, str]:
    """The functions for which a column's check fails, each with the reason."""
    found: dict[str, str] = {}
    for name in NAMES:
        try:
            if applies(column, name):
                COLUMNS[column](name)
        except Exception as error:  # whatever it is, it is a result
            found[name] = f"{type(error).__name__}: {error}"
    return found


def table(failed: dict[str, dict[str, str]]) -> str:
    """The results in Markdown: a row for each function, a column for each check."""
    lines = [["function", *COLUMNS], ["---", *(":-:" for _ in COLUMNS)]]
    for name in NAMES:
        marks = ["–" if not applies(c, name) else "✗" if name in failed[c] else "✓" for c in COLUMNS]
        lines.append([f"{name} `{catalogue[name].formula}`", *marks])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    warnings.simplefilter("ignore")  # of torch.compile's and the exporters' own making
    failed: dict[str, dict[str, str]] = {}
    for column in COLUMNS:
        failed[column] = failures(column)
        for name, reason in failed[column].items():
            print(f"{column}, {name}: {reason}", file=sys.stderr)
        print(f"{column}: {len(failed[column])} failed", file=sys.stderr)
    libraries = ("torch", "onnx", "onnxscript", "onnxruntime", "triton")
    versions = ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in libraries)]
    )
    PAGE.write_text(HEAD.format(versions=versions, table=table(failed)) + ABOUT, "utf-8")
    return int(any(failed.values()))


if __name__ == "__main__":
    sys.exit(main())
