"""Describe failures: what was wrong, and a script that reproduces it."""

from __future__ import annotations

import numpy as np

from tests.fuzz.bounded import Array
from tests.fuzz.cases import Case
from tests.fuzz.check import Failure

MOST = 400
"""The most numbers of an array to print."""


def line(failure: Failure) -> str:
    """A summary in one line."""
    case, run = failure.case, failure.run
    formulas = " | ".join(map(str, case.formula.kinds))
    size = f"{len(run.rows)}×{case.inputs}→{case.outputs}"
    return (
        f"{failure.name} must be {failure.must}: "
        f"{case.layer} {formulas!r} {case.form.name} {run.backend} {size}, "
        f"zeros {case.zeros:.0%}, x {run.layout}, errors {run.errors_layout}, threads {run.threads}, "
        f"seed {case.seed} ({case.about})"
    )


def numbers(failure: Failure) -> str:
    if not failure.place:
        return ""
    text = f"at {list(failure.place)} got {failure.actual!r}, must be {failure.must}"
    if failure.must == "finite":
        off = abs(failure.actual - failure.truth) / failure.allowed
        text += f": {failure.truth!r} ± {failure.allowed:.3g} ({off:.3g} times too far)"
    return f"{text}; {failure.entries} entries are wrong"


def script(failure: Failure) -> str:
    """Python code that reproduces the failure without this fuzzer."""
    case, run = failure.case, failure.run
    arrays = [case.x[..., run.rows, :], run.errors, *case.matrices.values()]
    if any(array.size > MOST for array in arrays):
        return f"python -m tests.fuzz --case {case.seed}"
    kinds = [_function(case, str(tree)) for tree in case.formula.kinds]
    function = kinds[0]
    if len(kinds) > 1:
        assign = case.matrices["kind"].T.astype(int).tolist()
        function = f"ftnn.Mixed([{', '.join(kinds)}], {assign})"
    pairs = "" if case.present is None else f", {np.argwhere(case.present.T).tolist()}"
    through = ", through_time=True" if case.through_time else ""
    how = f'bias=False{through}, dtype=dtype, backend="{run.backend}"'
    lines = [
        "import torch, ftnn",
        "from math import inf, nan",
        f"dtype = torch.{case.form.name}",
        f"layer = ftnn.nn.{case.layer}({case.inputs}, {case.outputs}, {function}{pairs}, {how})",
    ]
    trained = {name: m for name, m in case.matrices.items() if name != "kind"}
    for name, matrix in trained.items():
        kept = matrix if case.present is None else matrix.T[case.present.T]
        owner = "constants" if name in case.formula.constants else "theta"
        lines += _tensor(name, kept)
        lines.append(f"layer.{owner}[{name!r}].data.copy_({name})")
    lines += _tensor("x", case.x[..., run.rows, :])
    lines += _tensor("g", run.errors)
    lines.append(f"x.requires_grad_({run.by_x})")
    if case.state is not None:
        lines += _tensor("state", case.state[run.rows].transpose(0, 2, 1))
        lines.append("y, last = layer(x, state)")
    else:
        lines.append("y = layer(x)")
    lines.append("y.backward(g)")
    lines.append("print(y, x.grad, {name: m.grad for name, m in layer.named_parameters()})")
    return "\n".join(lines)


def _function(case: Case, text: str) -> str:
    constants = ", constants={'u': (-1, 1)}" if "u" in case.formula.constants and "u" in text else ""
    parameters = f"ftnn.Function({text!r}{constants}).parameters"
    return f"ftnn.Function({text!r}, init=dict.fromkeys({parameters}, (-1, 1)){constants})"


def _tensor(name: str, array: Array) -> list[str]:
    shape = list(array.shape)
    if array.size > 4 and np.unique(array.view(f"u{array.dtype.itemsize}")).size == 1:
        lines = [f"{name} = torch.full({shape}, {_literal(array.flat[0])}, dtype=dtype)"]
    else:
        flat = ", ".join(_literal(number) for number in array.flat)
        lines = [f"{name} = torch.tensor([{flat}], dtype=dtype).reshape({shape})"]
    bits = array.itemsize * 8
    whole = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
    usual = np.array(np.nan, array.dtype).view(f"i{array.dtype.itemsize}")
    for place in np.argwhere(np.isnan(array) & (whole != usual)):
        at = ", ".join(map(str, place))
        lines.append(f"{name}.view(torch.int{bits})[{at}] = {int(whole[tuple(place)])}  # NaN")
    return lines


def _literal(number: Array) -> str:
    return str(number)


def full(failure: Failure) -> str:
    return "\n".join(part for part in (line(failure), numbers(failure), script(failure)) if part)
