"""Run cases with ftnn: the only file here that imports it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ftnn
from tests.fuzz.bounded import Array
from tests.fuzz.cases import Case, Run
from tests.fuzz.expression import names

Layer = Any


def build(case: Case, backend: str) -> Layer:
    kinds = [
        _function(str(tree), {"u": (-1, 1)} if "u" in names(tree) else {}) for tree in case.formula.kinds
    ]
    is_mixed = len(kinds) > 1
    function = ftnn.Mixed(kinds, case.matrices["kind"].T.astype(int)) if is_mixed else kinds[0]
    options: dict[str, Any] = {"bias": False, "dtype": getattr(torch, case.form.name), "backend": backend}
    if case.layer == "Memory":
        layer: Layer = ftnn.nn.Memory(
            case.inputs, case.outputs, function, through_time=case.through_time, **options
        )
    elif case.layer == "Partial":
        assert case.present is not None
        pairs = np.argwhere(case.present.T)
        layer = ftnn.nn.Partial(case.inputs, case.outputs, function, pairs, **options)
    else:
        layer = ftnn.nn.Transfer(case.inputs, case.outputs, function, **options)
    state = layer.state_dict()
    for name, matrix in case.matrices.items():
        for key in (f"theta.{name}", f"constants.{name}"):
            if key in state:
                state[key] = torch.from_numpy(_listed(case, matrix).copy())
    layer.load_state_dict(state)
    return layer


def _function(text: str, constants: dict[str, tuple[int, int]]) -> ftnn.Function:
    """With some range for every parameter: layers refuse formulas for which they find none."""
    parameters = ftnn.Function(text, constants=constants).parameters
    return ftnn.Function(text, init=dict.fromkeys(parameters, (-1, 1)), constants=constants)


def _listed(case: Case, matrix: Array) -> Array:
    """A matrix as the layer stores it: for Partial, a list by output and input."""
    return matrix if case.present is None else matrix.T[case.present.T]


def laid_out(array: Array, layout: str) -> Tensor:
    """The array as a tensor with the strides of a layout; strides are 0 where its numbers repeat."""
    plain = torch.from_numpy(np.ascontiguousarray(array).copy())
    match layout:
        case "transposed":
            return plain.transpose(-1, -2).contiguous().transpose(-1, -2)
        case "strided":
            wide = plain.new_full((*plain.shape[:-1], plain.shape[-1] * 2 + 1), float("nan"))
            view = wide[..., 1::2]
            view.copy_(plain)
            return view
        case "columns":
            return plain[..., :1].clone().expand(plain.shape)
        case "rows":
            return plain[..., :1, :].clone().expand(plain.shape)
        case "expanded":
            return plain.flatten()[:1].clone().reshape([1] * plain.dim()).expand(plain.shape)
        case _:
            return plain


@contextmanager
def threads(many: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(many)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def results(case: Case, run: Run) -> dict[str, Array]:
    """By name: the value, and the gradients that the run requests."""
    layer = build(case, run.backend)
    for name in run.frozen:
        layer.theta[name].requires_grad_(False)
    x = laid_out(case.x[..., run.rows, :], run.layout).requires_grad_(run.by_x)
    errors = laid_out(run.errors, run.errors_layout)
    with threads(run.threads):
        outputs = (
            _memory(case, run, layer, x, errors) if case.layer == "Memory" else _transfer(layer, x, errors)
        )
    if run.by_x and case.layer != "Memory":
        outputs["gradient by x"] = _array(x.grad, x)
    for name in case.formula.parameters:
        if name not in run.frozen:
            gradient = _array(layer.theta[name].grad, layer.theta[name])
            if case.present is not None:
                whole = np.zeros(case.present.T.shape, gradient.dtype)
                whole[case.present.T] = gradient
                gradient = whole.T
            outputs[f"gradient by {name}"] = gradient
    return outputs


def _transfer(layer: Layer, x: Tensor, errors: Tensor) -> dict[str, Array]:
    out = layer(x)
    if out.requires_grad:
        out.backward(errors)
    return {"value": _array(out, out)}


def _memory(case: Case, run: Run, layer: Layer, x: Tensor, errors: Tensor) -> dict[str, Array]:
    assert case.state is not None
    state = torch.from_numpy(case.state[run.rows].transpose(0, 2, 1).copy())
    out, last = layer(x, state)
    if out.requires_grad:
        out.backward(errors)
    outputs = {f"value at {time}": _array(each, each) for time, each in enumerate(out)}
    outputs["state"] = _array(last.transpose(1, 2), last)
    if run.by_x:
        slopes = _array(x.grad, x)
        outputs |= {f"gradient by x at {time}": slope for time, slope in enumerate(slopes)}
    return outputs


def _array(tensor: Tensor | None, like: Tensor) -> Array:
    """A tensor's numbers; zeros for a missing gradient."""
    return (torch.zeros_like(like) if tensor is None else tensor).detach().numpy()
