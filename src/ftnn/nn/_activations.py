"""Activations: names or formulas in x, with the slopes that training uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError, ShapeError
from ftnn.formula._derive import differentiate
from ftnn.formula._elsewhere import elsewhere, renamed
from ftnn.formula._expr import INPUT, Expr, symbol
from ftnn.formula._inputs import Inputs
from ftnn.formula._ops import FUNCTIONS, OPS
from ftnn.formula._parse import error_in, parse, with_arguments
from ftnn.kernels import evaluate

Activation = Literal["logistic", "relu", "tanh"]
"""The activations of the paper."""


class _Relu20(torch.autograd.Function):
    """A ReLU that ends at 20, as on the paper's platform; as there, its slope is a plain ReLU's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(0, 20)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.where(x <= 0, torch.zeros_like(x), grad_outputs[0])


def _relu20(x: Tensor) -> Tensor:
    return cast(Tensor, _Relu20.apply(x))


_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "relu20": _relu20,
}
_DECREED = {"relu20": ("min(relu(x), 20)", "where(x <= 0, 0, 1)")}
"""(value, slope) of activations whose slope is not the derivative."""
NAMES = tuple(_TORCH)
_UNARY = tuple(name for name in FUNCTIONS if OPS[name].arity == 1)


@dataclass(frozen=True)
class ActivationFormula:
    """φ as an expression in x."""

    text: str
    """As the user wrote it."""
    value: Expr
    slope: Expr

    def __call__(self, x: Tensor) -> Tensor:
        """φ(x), elementwise."""
        function = _TORCH.get(self.text)
        return evaluate((self.value,), {INPUT: x})[0] if function is None else function(x)

    @property
    def reaches_zero(self) -> bool:
        """Whether many outputs are exactly zero, as a ReLU's are."""
        points = torch.linspace(-3, 3, 64, device="cpu")
        return self.text == "relu" or bool((self(points) == 0).float().mean() > 0.25)


def activation_formula(activation: str) -> ActivationFormula:
    """An activation from its name, or from a formula in x such as `"x*logistic(x)"`."""
    if not isinstance(activation, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"expected an activation, such as 'tanh' or 'x*logistic(x)', got {activation!r}")
    return _read(activation)


@lru_cache(maxsize=256)
def _read(activation: str) -> ActivationFormula:
    if activation in _DECREED:
        value, slope = map(parse, _DECREED[activation])
        return ActivationFormula(activation, value, slope)
    if activation in _TORCH:
        value = parse(f"{activation}(x)")
    elif activation.isidentifier() and activation != INPUT:
        raise FtnnError(f"unknown activation {activation!r}; {_instead(activation)}")
    else:
        value = parse(activation)
        for name in sorted(value.names - {INPUT}):
            raise error_in(activation, f"an activation is a formula in x; {name!r} is unknown", name)
        if INPUT not in value.names:
            raise error_in(activation, "the activation does not depend on x")
    formula = ActivationFormula(activation, value, differentiate(value, INPUT))
    points = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, device="cpu")  # even with a default device
    probe = formula(points)
    if not bool(torch.isfinite(probe).all()):
        raise error_in(activation, "an activation must be finite at -1, 0 and 1")
    return formula


def _instead(activation: str) -> str:
    """What to write instead of an unknown name, which may be an activation elsewhere."""
    formula = f"{activation}(a)" if activation in _UNARY else elsewhere(activation) or "a*logistic(a)"
    if (name := renamed(formula)) in _TORCH:
        return f"did you mean {name!r}?"
    example = with_arguments(formula, {"a": symbol(INPUT)})
    return f"expected one of {', '.join(NAMES)}, or a formula in x such as {example!r}"


@dataclass(frozen=True)
class _ByFormula:
    """φ by its text, so that modules that hold it can be copied and pickled."""

    text: str

    def __call__(self, x: Tensor) -> Tensor:
        return activation_formula(self.text)(x)


def torch_activation(activation: str) -> Callable[[Tensor], Tensor]:
    """φ on tensors, ready to call: `torch.compile` sees nothing but torch's own function of a named one."""
    activation_formula(activation)
    return _TORCH.get(activation) or _ByFormula(activation)


def activations_for(activation: str | Sequence[str], layers: int) -> tuple[str, ...]:
    """One checked activation per layer, from a single one or a sequence."""
    sequence = [activation] * layers if isinstance(activation, str) else activation
    try:
        names = tuple(sequence)
    except TypeError:
        raise FtnnError(
            f"expected an activation, such as 'tanh' or 'x*logistic(x)', or one for each hidden layer, "
            f"got {activation!r}"
        ) from None
    if len(names) != layers:
        raise ShapeError(
            f"activation has length {len(names)}; expected one activation, or a sequence of length {layers}, "
            "one for each hidden layer"
        )
    for name in (activation,) if isinstance(activation, str) else names:
        activation_formula(name)
    return names


def inputs_through(*activations: str, scale: float = 1.0, shift: float = 0.0) -> Inputs:
    """What activations make of normal sums with this deviation and mean, as inputs of the next layer."""
    values = torch.from_numpy(scale * Inputs.normal().array + shift)
    for activation in activations:
        values = activation_formula(activation)(values)
    return Inputs.of(values.numpy())


class Activate(nn.Module):
    """An activation as a module."""

    def __init__(self, activation: str):
        super().__init__()
        self.activation, self._activate = activation, torch_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        return self._activate(x)

    def extra_repr(self) -> str:
        return repr(self.activation)


_MODULES: dict[type[nn.Module], Callable[[Any], str]] = {
    Activate: lambda module: module.activation,
    nn.Sigmoid: lambda _: "logistic",
    nn.ReLU: lambda _: "relu",
    nn.Tanh: lambda _: "tanh",
    nn.SiLU: lambda _: "x*logistic(x)",
    nn.Softsign: lambda _: "x/(1 + abs(x))",
    nn.GELU: lambda module: _GELU[module.approximate],
    nn.LeakyReLU: lambda module: f"where(x > 0, x, {float(module.negative_slope)!r}*x)",
    nn.ELU: lambda module: f"where(x > 0, x, {float(module.alpha)!r}*(exp(min(x, 0)) - 1))",
}
_GELU = {
    "none": "x*(1 + erf(x/sqrt(2)))/2",
    "tanh": f"x*(1 + tanh({math.sqrt(2 / math.pi)!r}*(x + 0.044715*x**3)))/2",
}
MODULES = tuple(_MODULES)
"""The types of modules that `formula_of` knows."""


def formula_of(module: nn.Module) -> str | None:
    """The activation, by name or as a formula in x, that a module computes; None if it is no activation."""
    formula = _MODULES.get(type(module))
    return None if formula is None else formula(module)
