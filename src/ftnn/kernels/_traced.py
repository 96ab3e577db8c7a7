"""The reference where torch looks on: compiled, exported and transformed code.

Tracers see a layer with sizes that are symbols, and functorch with axes of its own, so nothing here is cut
into blocks: a contraction is evaluated whole, in plain torch operations without writing in place.

- `torch.compile` sees one operator, `ftnn::contract`, which takes a contraction as text. Its inside (SymPy,
  caches, locks) is never traced by Dynamo; AOTAutograd takes it apart into plain operations by its
  decomposition, and its backward, which is again one. Inductor fuses what comes out: the array over
  (batch, in, out) is never stored.
- `torch.export` sees the plain operations and no operator of ours. An exported graph does hold arrays over
  (batch, in, out), unless who runs it fuses them.
- `torch.func` sees an `autograd.Function` with rules for `vmap`, reverse and forward mode, each of which is
  again a contraction: derivatives of any order, decreed ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from ftnn.formula._derive import gradient
from ftnn.formula._expr import ZERO, plus, symbol, times
from ftnn.kernels import _reference
from ftnn.kernels._evaluate import evaluate
from ftnn.kernels._program import Program, program
from ftnn.kernels._reference import Axes, Contraction, slopes_of

FORMS: dict[str, Callable[[Program], Contraction]] = {
    "transfer": _reference.transfer_form,
    "memory": _reference.memory_form,
    "list": _reference.list_form,
}
"""What a layer may compute, by the name that the operator takes."""


def whole(contraction: Contraction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The results of a contraction over all of (batch, in, out) at once, each a new tensor."""
    sizes = _reference.sizes_of(contraction.operands, tensors)
    values, shape = _reference.views(contraction, tensors), [sizes[axis] for axis in "bio"]
    found = evaluate(tuple(expr for expr, _ in contraction.results), values)
    return [
        _summed(value.expand(shape), axes)
        for value, (_, axes) in zip(found, contraction.results, strict=True)
    ]


def _summed(value: Tensor, axes: Axes) -> Tensor:
    # Not a view, even where nothing is summed: an operator's result may not share memory with what it took.
    return value.clone() if axes == "bio" else _reference.reduced(value, axes)


# --- torch.func and torch.export ---


@lru_cache(maxsize=1024)
def _forward_mode(contraction: Contraction, moving: tuple[int, ...]) -> Contraction:
    """The contraction of the results' directional derivative, while the operands numbered `moving` move.

    Its operands are those of `contraction`, then one tangent for each that moves.
    """
    taken = len(contraction.operands)
    tangents = tuple((f"∂{taken + k}", contraction.operands[n][1]) for k, n in enumerate(moving))
    results: list[tuple[Any, Axes]] = []
    for expr, axes in contraction.results:
        total = ZERO
        slopes = gradient(expr, [contraction.operands[n][0] for n in moving])
        for slope, (name, _) in zip(slopes, tangents, strict=True):
            total = plus(total, times(symbol(name), slope))
        results.append((total, axes))
    return Contraction((*contraction.operands, *tangents), tuple(results))


class _Plain(torch.autograd.Function):
    """A contraction for functorch; differentiable to any order, both ways."""

    generate_vmap_rule = True

    @staticmethod
    def forward(contraction: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tuple(whole(contraction, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.contraction, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *slopes_of(ctx.contraction, ctx.needs_input_grad[1:], ctx.saved_tensors, grads, plain)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        moving = tuple(n for n, tangent in enumerate(tangents[1:]) if tangent is not None)
        given = [tangents[1 + n] for n in moving]
        return plain(_forward_mode(ctx.contraction, moving), *ctx.saved_tensors, *given)


def plain(contraction: Contraction, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The results of a contraction in plain operations, under any of torch's transforms."""
    if torch.compiler.is_exporting():
        return tuple(whole(contraction, tensors))  # what is exported is not trained
    return cast("tuple[Tensor, ...]", _Plain.apply(contraction, *tensors))


# --- torch.compile ---


@lru_cache(maxsize=1024)
def planned(formula: str, constants: str, path: str) -> Contraction:
    """A contraction by its text.

    **Arguments:**

    - `formula`, `constants`: what `program` finds the function by.
    - `path`: one of `FORMS`; then, for each time it was differentiated, a slash and the numbers of the
        operands by which: `"transfer/0,1"`.
    """
    form, *chain = path.split("/")
    found = FORMS[form](program(formula, constants))
    for wanted in chain:
        found = _reference.backward_form(found, tuple(int(n) for n in wanted.split(",")))
    return found


_LIBRARY = torch.library.Library("ftnn", "FRAGMENT")
_LIBRARY.define("contract(Tensor[] tensors, str formula, str constants, str path) -> Tensor[]")
_BELOW: Any = torch._C._after_autograd_keyset


def _kernel(tensors: list[Tensor], formula: str, constants: str, path: str) -> list[Tensor]:
    with torch.no_grad():
        return _reference.in_blocks(planned(formula, constants, path), tensors)


def _decomposition(tensors: list[Tensor], formula: str, constants: str, path: str) -> list[Tensor]:
    return whole(planned(formula, constants, path), tensors)


def _fake(tensors: list[Tensor], formula: str, constants: str, path: str) -> list[Tensor]:
    contraction = planned(formula, constants, path)
    sizes = _reference.sizes_of(contraction.operands, tensors)
    return [tensors[0].new_empty([sizes[axis] for axis in axes]) for _, axes in contraction.results]


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, text: tuple[str, str, str], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.text = text
        return tuple(torch.ops.ftnn.contract.default.redispatch(keys & _BELOW, list(tensors), *text))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        formula, constants, path = ctx.text
        needed = ctx.needs_input_grad[2:]
        wanted = [n for n, need in enumerate(needed) if need]
        longer = f"{path}/{','.join(map(str, wanted))}"
        found = torch.ops.ftnn.contract.default([*ctx.saved_tensors, *grads], formula, constants, longer)
        by_number = dict(zip(wanted, found, strict=True))
        return None, None, *(by_number.get(n) for n in range(len(needed)))


def _autograd(keys: Any, tensors: list[Tensor], formula: str, constants: str, path: str) -> list[Tensor]:
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return list(cast("tuple[Tensor, ...]", _Recorded.apply(keys, (formula, constants, path), *tensors)))
    op = torch.ops.ftnn.contract.default
    return op.redispatch(keys & _BELOW, tensors, formula, constants, path)


def _transformed(tensors: list[Tensor], formula: str, constants: str, path: str) -> list[Tensor]:
    return list(plain(planned(formula, constants, path), *tensors))


_LIBRARY.impl("contract", _kernel, "CompositeExplicitAutograd")
_LIBRARY.impl("contract", _autograd, "Autograd", with_keyset=True)
# Where compiled code has transforms inside: before functorch asks for a rule, there is no operator any more.
_LIBRARY.impl("contract", _transformed, "FuncTorchDynamicLayerFrontMode")
torch.library.register_fake("ftnn::contract", _fake, lib=_LIBRARY)
# Tracers take it apart by this, once autograd has been through.
torch.ops.ftnn.contract.default.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)(_decomposition)


# --- which of them ---


def looked_on() -> bool:
    """Whether torch exports or transforms the code that runs now: then it must be plain operations."""
    return torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()


def traced() -> bool:
    """Whether the code that runs now is being compiled, exported or transformed."""
    return torch.compiler.is_dynamo_compiling() or looked_on()


def compute(form: str, formula: str, constants: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The results of one of `FORMS`, for compiled, exported or transformed code."""
    if torch.compiler.is_dynamo_compiling():
        return torch.ops.ftnn.contract.default(list(tensors), formula, constants, form)
    return plain(planned(formula, constants, form), *tensors)
