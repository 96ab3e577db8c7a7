"""Update rules as formulas: how a step changes a parameter, given its gradient.

This is the only definition of each optimiser: the compiled engine turns it into vector code, and the torch
engine evaluates it on tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ftnn.errors import FormulaError, FtnnError
from ftnn.formula._expr import Call, Expr, call, number, plus, postorder, substitute, symbol, times
from ftnn.formula._names import GRADIENT, PARAMETER
from ftnn.formula._numpy import evaluate
from ftnn.formula._parse import error_in, parse
from ftnn.training._checks import quoted, real

if TYPE_CHECKING:  # settings are read without torch
    from torch import Tensor

    from ftnn.kernels.loops.updates import Update

Array = np.ndarray[Any, np.dtype[Any]]
RATE, STEP, DECAY = "rate", "step", "decay"
SYMBOLS = {
    PARAMETER: "the parameter",
    GRADIENT: "its gradient, a mean over the mini-batch",
    RATE: "the learning rate",
    STEP: "the number of the step, from 1",
    DECAY: "the weight decay",
}
"""The symbols that a rule can use, apart from its states and constants."""


@dataclass(frozen=True)
class Rule:
    """An update rule: how a step changes a parameter.

    **Arguments:**

    - `update`: the new parameter, a formula in `p` (the parameter), `g` (its gradient, a mean over the
        mini-batch), `rate`, `step` (from 1), `decay` (the weight decay), the constants, and the new values
        of the states.
    - `state`: formulas for the values that are carried from step to step, by name. Each starts at 0. These
        formulas see the old values of the states.
    - `constants`: numbers, by name.

    If there is weight decay, a rule that does not mention `decay` gets `g + decay*p` for `g`.

    ```python
    Rule("p - rate*m", state={"m": "0.9*m + g"})    # SGD with momentum
    ```
    """

    update: str
    state: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        for argument, example in (("state", {"m": "0.9*m + g"}), ("constants", {"eps": 1e-8})):
            value = getattr(self, argument)
            if not isinstance(value, Mapping):
                raise FtnnError(f"{argument}={quoted(value)} must be a dictionary by name, such as {example}")
        names = {*SYMBOLS, *self.state, *self.constants}
        for name in (*self.state, *self.constants):
            if name in SYMBOLS or not _is_symbol(name):
                raise FtnnError(
                    f"{quoted(name)} cannot name a state or a constant; expected a word other than "
                    f"functions, pi, Python's keywords, {', '.join(SYMBOLS)}"
                )
        if both := sorted({*self.state} & {*self.constants}):
            raise FtnnError(f"{both[0]!r} is both a state and a constant")
        for name, value in self.constants.items():
            real(f"the constant {name}", value)
        for text in (self.update, *self.state.values()):
            for name in sorted(_parsed(text).names - names):
                expected = ", ".join([*SYMBOLS, *self.state, *self.constants])
                raise error_in(text, f"unknown symbol {name!r}; expected one of {expected}", name)
        if GRADIENT not in {
            name for text in (self.update, *self.state.values()) for name in _parsed(text).names
        }:
            raise error_in(self.update, "the rule does not use the gradient g")
        if not self.compiled(0.0).is_finite_at_first():
            raise error_in(self.update, "the rule is not finite at its first step")

    def __hash__(self) -> int:
        return hash((self.update, tuple(self.state.items()), tuple(self.constants.items())))

    def describe(self) -> dict[str, Any]:
        """Everything that determines the rule's steps, as JSON."""
        return {"update": self.update, "state": dict(self.state), "constants": dict(self.constants)}

    def compiled(self, decay: float) -> CompiledRule:
        """The rule with a weight decay, split into a part computed once per step and the rest."""
        numbers = {name: number(value) for name, value in self.constants.items()} | {DECAY: number(decay)}
        texts = (self.update, *self.state.values())
        formulas = [substitute(_parsed(text), numbers) for text in texts]
        if decay and not any(DECAY in _parsed(text).names for text in texts):
            decayed = plus(symbol(GRADIENT), times(number(decay), symbol(PARAMETER)))
            formulas = [substitute(formula, {GRADIENT: decayed}) for formula in formulas]
        return CompiledRule(tuple(self.state), tuple(formulas))


@dataclass(frozen=True)
class CompiledRule:
    """A rule's formulas: first the parameter's, then those of its states."""

    states: tuple[str, ...]
    formulas: tuple[Expr, ...]

    @property
    def depends_on_past(self) -> bool:
        """Whether a step depends on earlier ones, through states or their number."""
        return bool(self.states) or any(STEP in formula.names for formula in self.formulas)

    @cached_property
    def _scalar_parts(self) -> tuple[Expr, ...]:
        """The largest parts that depend only on the rate and the step number."""

        def is_scalar(part: Expr) -> bool:
            return bool(part.names) and part.names <= {RATE, STEP}

        users = [part for part in postorder(*self.formulas) if isinstance(part, Call) and not is_scalar(part)]
        candidates = (*self.formulas, *(arg for user in users for arg in user.args))
        return tuple(dict.fromkeys(part for part in candidates if is_scalar(part)))

    @cached_property
    def update(self) -> Update:
        """The rule as kernels evaluate it."""
        from ftnn.kernels.loops.updates import Update

        symbols = {part: symbol(f"scalar {n}") for n, part in enumerate(self._scalar_parts)}
        value, *states = (_replaced(formula, symbols) for formula in self.formulas)
        return Update(value, tuple(zip(self.states, states, strict=True)), tuple(symbols.values()))

    def scalars(self, rates: Any, steps: Any) -> Array:
        """The scalars of each step, (steps, scalars), float64, from the steps' rates and numbers."""
        values = {RATE: np.asarray(rates, np.float64), STEP: np.asarray(steps, np.float64)}
        parts = [np.broadcast_to(evaluate(part, values), len(rates)) for part in self._scalar_parts]
        return np.stack(parts, 1) if parts else np.zeros((len(rates), 0))

    def is_finite_at_first(self) -> bool:
        """Whether the first step of an ordinary parameter is finite."""
        known = {PARAMETER: np.array([-0.5, 0.5]), GRADIENT: np.array([-0.25, 0.25]), RATE: 0.01, STEP: 1.0}
        update, *formulas = self.formulas
        before = dict.fromkeys(self.states, 0.0)
        after = [evaluate(formula, known | before) for formula in formulas]
        new = evaluate(update, known | dict(zip(self.states, after, strict=True)))
        return all(np.isfinite(part).all() for part in (new, *after))

    def step_on(
        self, p: Tensor, g: Tensor, states: list[Tensor], rate: float, step: int
    ) -> tuple[Tensor, list[Tensor]]:
        """The new parameter and states, on tensors."""
        from ftnn.kernels import evaluate

        known = {PARAMETER: p, GRADIENT: g, RATE: p.new_tensor(rate), STEP: p.new_tensor(float(step))}
        update, *formulas = self.formulas
        before = dict(zip(self.states, states, strict=True))
        after = evaluate(tuple(formulas), known | before) if formulas else []
        (new,) = evaluate((update,), known | dict(zip(self.states, after, strict=True)))
        return new.expand_as(p), [state.expand_as(p) for state in after]


def _parsed(text: str) -> Expr:
    return parse(text, symbols=(STEP,))  # elsewhere, `step` is a function


def _is_symbol(name: str) -> bool:
    """Whether formulas read a name as a symbol, and not as a number, a function or part of Python."""
    try:
        return _parsed(name) == symbol(name)
    except FormulaError:
        return False


def _replaced(formula: Expr, symbols: Mapping[Expr, Expr]) -> Expr:
    replaced: dict[Expr, Expr] = {}
    for part in postorder(formula):
        if part in symbols:
            replaced[part] = symbols[part]
        elif isinstance(part, Call):
            replaced[part] = call(part.op, *(replaced[arg] for arg in part.args))
        else:
            replaced[part] = part
    return replaced[formula]


_ADAM = {"m": "b1*m + (1 - b1)*g", "v": "b2*v + (1 - b2)*g**2"}
_ADAM_STEP = "rate/(1 - b1**step)*m/(sqrt(v)/sqrt(1 - b2**step) + eps)"
_BETAS = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}

RULES: dict[str, Rule] = {
    "sgd": Rule("p - rate*g"),
    "momentum": Rule("p - rate*m", {"m": "mu*m + g"}, {"mu": 0.9}),
    "nesterov": Rule("p - rate*(g + mu*m)", {"m": "mu*m + g"}, {"mu": 0.9}),
    "rmsprop": Rule("p - rate*g/(sqrt(v) + eps)", {"v": "a*v + (1 - a)*g**2"}, {"a": 0.99, "eps": 1e-8}),
    "adam": Rule(f"p - {_ADAM_STEP}", _ADAM, _BETAS),
    "adamw": Rule(f"p*(1 - rate*decay) - {_ADAM_STEP}", _ADAM, _BETAS),
}
"""The optimisers with a name, as `torch.optim` defines them."""
