"""`Function`: what stands on a connection."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from ftnn.errors import FormulaError, FtnnError
from ftnn.formula._derive import at_zero, gradient, simplify
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Call, Expr, canonical, folded, names, number, substitute
from ftnn.formula._parse import parse
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._explain import Explanation
    from ftnn.formula._plan import Plan

MAX_OPERATIONS = 3_000
"""Operations, numbers and names in a function and all its derivatives, counting equal ones once: what can be
compiled within a second or two."""
DEFAULT_RANGE = (-0.1, 0.1)
"""Where a parameter starts unless said otherwise: the paper's range."""

Range = tuple[float, float]


class Function:
    """A function with trainable parameters, to stand on every connection of a layer.

    **Arguments:**

    - `formula`: the text, such as `"p*sin(q*x + r)"`. `x` is the input; `C` the function's own previous
        value, which makes it a memory function; every other name is a parameter, or a constant if it is
        declared one.
    - `init`: for each parameter that does not start uniform in ±0.1, its `(low, high)`.
    - `constants`: for each constant, the values it is drawn from, once, before training: `{"u": (-1, 1)}`.

    A function never changes. Two are equal if they have the same expression (up to the order of sums and
    products), constants and initial ranges.
    """

    def __init__(
        self,
        formula: str,
        *,
        init: Mapping[str, Sequence[float]] | None = None,
        constants: Mapping[str, Iterable[float]] | None = None,
    ):
        self._set(formula, parse(formula), init or {}, constants or {})

    @classmethod
    def composed(
        cls, formula: str, init: Mapping[str, Sequence[float]], constants: Mapping[str, Iterable[float]]
    ) -> Function:
        """A function whose text ftnn wrote itself, from functions within the limits: of any length."""
        made = cls.__new__(cls)
        made._set(formula, parse(formula, limited=False), init, constants)
        return made

    def _set(
        self,
        formula: str,
        expr: Expr,
        init: Mapping[str, Sequence[float]],
        constants: Mapping[str, Iterable[float]],
    ) -> None:
        self._formula = formula.strip()
        self._written = expr
        self._choices = _checked_constants(constants, formula, names(expr))
        self._init = _checked_ranges(init, formula, self.parameters)
        if INPUT not in names(expr):
            raise FormulaError(
                "the formula has no x, the connection's input; without it a connection carries nothing",
                text=formula,
                end=len(formula),
            )
        if not self.parameters:
            raise FormulaError(
                "the formula has no parameter to train; each name but x, C, pi and constants is one",
                text=formula,
                end=len(formula),
            )

    # --- what it is ---

    @property
    def formula(self) -> str:
        """The text, as it was written."""
        return self._formula

    @cached_property
    def expr(self) -> Expr:
        """The expression, with numbers folded: what plans and kernels are made of."""
        return simplify(self._written)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The trainable names, in order of appearance."""
        known = (INPUT, MEMORY, *self._choices)
        return tuple(name for name in names(self._written) if name not in known)

    @property
    def constants(self) -> tuple[str, ...]:
        """The names that are drawn once and never trained."""
        return tuple(self._choices)

    @property
    def init(self) -> dict[str, Range]:
        """The initial range of every parameter."""
        return {name: self._init.get(name, DEFAULT_RANGE) for name in self.parameters}

    @property
    def choices(self) -> dict[str, tuple[float, ...]]:
        """The values that each constant is drawn from."""
        return dict(self._choices)

    @cached_property
    def has_memory(self) -> bool:
        """Whether it uses `C`, its own previous value."""
        return MEMORY in names(self.expr)

    @property
    def sympy(self) -> Any:
        """The function as a SymPy expression."""
        from ftnn.formula._sympy import to_sympy

        return to_sympy(self.expr)

    def slope(self, name: str) -> Expr:
        """∂F/∂name as an expression of ours, with the decreed derivatives."""
        allowed = (INPUT, *((MEMORY,) if self.has_memory else ()), *self.parameters)
        if name not in allowed:
            raise FormulaError(
                f"no derivative by {name!r}: this function is differentiated by {', '.join(allowed)}",
                **_place(self._formula, name),
            )
        return self.slopes[name]

    @cached_property
    def slopes(self) -> dict[str, Expr]:
        """∂F/∂name by the input, the memory cell if there is one, and every parameter."""
        by = (INPUT, *((MEMORY,) if self.has_memory else ()), *self.parameters)
        try:
            return dict(zip(by, gradient(self.expr, by, MAX_OPERATIONS), strict=True))
        except FtnnError as error:
            raise FormulaError(str(error), text=self._formula, end=len(self._formula)) from None

    def derivative(self, name: str) -> Any:
        """∂F/∂name, for `"x"` or a parameter, as a SymPy expression."""
        from ftnn.formula._sympy import to_sympy

        return to_sympy(self.slope(name))

    def latex(self) -> str:
        """The function in LaTeX."""
        from ftnn.formula._sympy import to_latex

        return to_latex(self.sympy)

    # --- what it does ---

    def __call__(self, x: Any, /, **values: Any) -> Any:
        """F(x) in float64, broadcast; parameters and constants are given by name."""
        from ftnn.formula._numpy import evaluate

        wanted = {*names(self._written)} - {INPUT}
        if set(values) != wanted:
            given = ", ".join(sorted(values)) or "nothing"
            raise TypeError(f"{self._formula!r} takes {', '.join(sorted(wanted))}, not {given}")
        return evaluate(self.expr, {INPUT: x, **values})[()]

    @cached_property
    def plan(self) -> Plan:
        """How it is computed: lowered to GEMMs or fused, and why."""
        from ftnn.formula._plan import make_plan

        return make_plan(self.expr)

    @cached_property
    def at_zero(self) -> Expr:
        """F(0): what a silent input sends, for parameters for which it is finite."""
        return at_zero(self.expr, drops=lambda _: True)

    def grounded(self) -> Function:
        """The function F(x) - F(0): a silent input sends nothing.

        What every connection into a unit sends whatever its input is drowns the gradient of deep networks;
        this takes it out. Raises `FormulaError` where F(0) is not finite.
        """
        from ftnn.formula._explain import is_finite_at_zero

        if not is_finite_at_zero(self):
            at_zero = to_text(substitute(self.expr, {INPUT: number(0)}))
            raise FormulaError(
                f"cannot be grounded: F(0) = {at_zero} is not finite for every parameter in its "
                "initial range",
                text=self._formula,
                end=len(self._formula),
            )
        if self._is_grounded:
            return self
        grounded = to_text(folded("sub", self.expr, self.at_zero))
        keep = names(parse(grounded, limited=False))
        return Function.composed(
            grounded,
            {name: pair for name, pair in self._init.items() if name in keep},
            {name: found for name, found in self._choices.items() if name in keep},
        )

    @property
    def _is_grounded(self) -> bool:
        """Whether it is written as F(x) - F(0), or has no F(0)."""
        match self.expr:
            case Call("sub", (first, second)) if second is at_zero(first, drops=lambda _: True):
                return True
            case _:
                return self.at_zero is ZERO

    def explain(self, x: Range = (-1.0, 1.0)) -> Explanation:
        """What a person wants to know before training: derivatives, plan, zeros, poles, jumps, overflow,
        sleep and death.

        **Arguments:**

        - `x`: the range of inputs to look at.
        """
        from ftnn.formula._explain import explain

        return explain(self, x)

    # --- as a value ---

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        return canonical(self.expr), frozenset(self._choices.items()), frozenset(self.init.items())

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Function) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        init = f", init={self._init!r}" if self._init else ""
        constants = f", constants={self._choices!r}" if self._choices else ""
        try:
            parse(self._formula)
        except FormulaError:  # ftnn composed it, longer than a person may write
            return f"Function.composed({self._formula!r}, {self._init!r}, {self._choices!r})"
        return f"Function({self._formula!r}{init}{constants})"

    def __str__(self) -> str:
        return self._formula

    def __reduce__(self) -> tuple[Any, ...]:
        return Function.composed, (self._formula, self._init, self._choices)

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: object) -> Function:
        return self


class _Place(TypedDict):
    text: str
    start: int
    end: int


def _place(formula: str, name: str) -> _Place:
    """Where `name` first stands in the formula, for an error; the whole formula if it does not."""
    found = re.search(rf"\b{re.escape(str(name))}\b", formula)
    start, end = found.span() if found else (0, len(formula))
    return {"text": formula, "start": start, "end": end}


def _checked_constants(
    constants: Mapping[str, Iterable[float]], formula: str, found: tuple[str, ...]
) -> dict[str, tuple[float, ...]]:
    checked: dict[str, tuple[float, ...]] = {}
    for name, values in constants.items():
        if name in (INPUT, MEMORY):
            raise FormulaError(f"{name} cannot be a constant: it is {_ROLE[name]}", **_place(formula, name))
        if name not in found:
            raise FormulaError(
                f"the constant {name!r} does not occur in the formula", **_place(formula, name)
            )
        try:
            checked[name] = tuple(float(value) for value in values)
        except (TypeError, ValueError, OverflowError):
            raise FormulaError(
                f"the constant {name!r} must be given as the numbers it is drawn from, such as (-1, 1), "
                f"not {values!r}",
                **_place(formula, name),
            ) from None
        if not checked[name] or not all(map(math.isfinite, checked[name])):
            raise FormulaError(
                f"the constant {name!r} needs one finite number or more, not {values!r}",
                **_place(formula, name),
            )
    return checked


_ROLE = {INPUT: "the connection's input", MEMORY: "the function's previous value"}


def _checked_ranges(
    init: Mapping[str, Sequence[float]], formula: str, parameters: tuple[str, ...]
) -> dict[str, Range]:
    checked: dict[str, Range] = {}
    for name, given in init.items():
        if name not in parameters:
            raise FormulaError(
                f"init names {name!r}, which is no parameter of this formula; its parameters are "
                f"{', '.join(parameters) or 'none'} (a name is a parameter or a constant, never both)",
                **_place(formula, name),
            )
        try:
            low, high = (float(bound) for bound in given)
        except (TypeError, ValueError, OverflowError):
            raise FormulaError(
                f"the initial range of {name!r} must be (low, high), not {given!r}", **_place(formula, name)
            ) from None
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise FormulaError(
                f"the initial range of {name!r} must be finite and low ≤ high, not {given!r}",
                **_place(formula, name),
            )
        if (low, high) != DEFAULT_RANGE:
            checked[name] = (low, high)
    return checked
