"""`Function`: a formula with its initial ranges and constants, for the connections of a layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ftnn._printable import quoted
from ftnn.errors import FormulaError, FtnnError
from ftnn.formula._derive import at_zero, gradient, simplify
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Call, Expr, canonical, folded, names, number, substitute
from ftnn.formula._parse import error_in, parse
from ftnn.formula._ranges import Range, checked_constants, checked_ranges
from ftnn.formula._text import to_text
from ftnn.formula._where import split_ranges

if TYPE_CHECKING:
    from ftnn.formula._explain import Explanation
    from ftnn.formula._plan import Plan

MAX_OPERATIONS = 3_000
"""The limit on operations, numbers and names in a function and all its derivatives, counting equal ones once:
about what compiles within two seconds."""


class Function:
    """A function with trainable parameters, for every connection of a layer.

    **Arguments:**

    - `formula`: the text, such as `"p*sin(q*x + r)"`. `x` is the input. `C` is the function's previous value;
        it makes the function a memory function. Every other name is a parameter, unless `constants` has it.
        Initial ranges may follow: `"p*sin(q*x + r) where q in [-10, 10] and r in [-3, 3]"`.
    - `init`: the initial range `(low, high)` of parameters, if the text has none. Layers choose the other
        ranges themselves, from the formula and their inputs.
    - `constants`: for each constant, the values from which it is drawn once, before training:
        `{"u": (-1, 1)}`.

    Functions are immutable. Two are equal if they have the same expression (up to the order of sums and
    products), constants and initial ranges.
    """

    def __init__(
        self,
        formula: str,
        *,
        init: Mapping[str, Sequence[float]] | None = None,
        constants: Mapping[str, Iterable[float]] | None = None,
    ):
        text, ranges = split_ranges(formula)
        for what, given, example in (
            ("init", init, "{'p': (0, 1)}"),
            ("constants", constants, "{'u': (-1, 1)}"),
        ):
            if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise error_in(
                    formula, f"{what} must be a dictionary, such as {example}, not {quoted(given)}"
                )
        for name in ranges:
            if name in (init or {}):
                raise error_in(formula, f"the range of {name!r} is given twice: here and in init", name)
        self._set(text, parse(text), {**(init or {}), **ranges}, constants or {})

    @classmethod
    def composed(
        cls, formula: str, init: Mapping[str, Sequence[float]], constants: Mapping[str, Iterable[float]]
    ) -> Function:
        """A function of any length, whose text ftnn composed from functions within the limits."""
        function = cls.__new__(cls)
        function._set(formula, parse(formula, limited=False), init, constants)
        return function

    def _set(
        self,
        formula: str,
        expr: Expr,
        init: Mapping[str, Sequence[float]],
        constants: Mapping[str, Iterable[float]],
    ) -> None:
        self._formula = formula.strip()
        self._written = expr
        self._choices = checked_constants(constants, formula, names(expr))
        if INPUT not in names(expr):
            raise _without_input(formula, self.parameters)
        self._init = checked_ranges(init, formula, self.parameters)
        if not self.parameters:
            hint = "every name except x, C, pi and constants is a parameter"
            raise error_in(formula, f"the formula has no parameter to train; {hint}")

    @property
    def formula(self) -> str:
        """The text as written, without ranges."""
        return self._formula

    @property
    def written(self) -> Expr:
        """The expression as written, with every name in it."""
        return self._written

    @cached_property
    def expr(self) -> Expr:
        """The expression with numbers folded, for plans and kernels."""
        return simplify(self._written)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The trainable names, in order of appearance."""
        fixed = (INPUT, MEMORY, *self._choices)
        return tuple(name for name in names(self._written) if name not in fixed)

    @property
    def constants(self) -> tuple[str, ...]:
        """The names whose values are drawn once and never trained."""
        return tuple(self._choices)

    @property
    def init(self) -> dict[str, Range]:
        """The given initial ranges, by parameter. Layers choose the others."""
        return {name: self._init[name] for name in self.parameters if name in self._init}

    @property
    def choices(self) -> dict[str, tuple[float, ...]]:
        """The values from which each constant is drawn."""
        return dict(self._choices)

    @cached_property
    def has_memory(self) -> bool:
        """Whether it uses `C`, its own previous value."""
        return MEMORY in names(self._written)

    @property
    def sympy(self) -> Any:
        """The function as a SymPy expression."""
        from ftnn.formula._sympy import to_sympy

        return to_sympy(self.expr)

    def slope(self, name: str) -> Expr:
        """∂F/∂name as an expression, with surrogate gradients where the table of operations has them."""
        if name not in self._arguments:
            message = f"no derivative with respect to {name!r}; expected one of {', '.join(self._arguments)}"
            raise error_in(self._formula, message, str(name))
        return self.slopes[name]

    @property
    def _arguments(self) -> tuple[str, ...]:
        """The names with respect to which it is differentiated."""
        return (INPUT, *((MEMORY,) if self.has_memory else ()), *self.parameters)

    @cached_property
    def slopes(self) -> dict[str, Expr]:
        """∂F/∂name for the input, the previous value if it is used, and every parameter."""
        try:
            slopes = gradient(self.expr, self._arguments, MAX_OPERATIONS)
        except FtnnError as error:
            raise error_in(self._formula, str(error)) from None
        return dict(zip(self._arguments, slopes, strict=True))

    def derivative(self, name: str) -> Any:
        """∂F/∂name, for `"x"` or a parameter, as a SymPy expression."""
        from ftnn.formula._sympy import to_sympy

        return to_sympy(self.slope(name))

    def latex(self) -> str:
        """The function in LaTeX."""
        from ftnn.formula._sympy import to_latex

        return to_latex(self.sympy)

    def __call__(self, x: Any, /, **values: Any) -> Any:
        """F(x) in float64, broadcast. Parameters and constants are keyword arguments."""
        from ftnn.formula._numpy import evaluate

        expected = {*names(self._written)} - {INPUT}
        if set(values) != expected:
            got = ", ".join(sorted(values)) or "nothing"
            raise TypeError(f"{self._formula!r} takes {', '.join(sorted(expected))}, not {got}")
        return evaluate(self.expr, {INPUT: x, **values})[()]

    @cached_property
    def plan(self) -> Plan:
        """Whether it is computed as GEMMs or fused, and why."""
        from ftnn.formula._plan import make_plan

        return make_plan(self.expr)

    @cached_property
    def at_zero(self) -> Expr:
        """F(0), the output for a silent input, assuming that the parameters make it finite."""
        return _at_zero(self.expr)

    def grounded(self) -> Function:
        """The function F(x) - F(0), which is 0 for a silent input.

        In deep networks, a constant output from every connection drowns the gradient; grounding removes it.
        Raises `FormulaError` if F(0) is not finite.
        """
        from ftnn.formula._measure import is_finite_at_zero

        if not is_finite_at_zero(self):
            value = to_text(substitute(self.expr, {INPUT: number(0)}))
            message = f"cannot be grounded: F(0) = {value} is not finite for all initial parameters"
            raise error_in(self._formula, message)
        if self.is_grounded or self.at_zero is ZERO:
            return self
        grounded = to_text(folded("sub", self.expr, self.at_zero))
        used = names(parse(grounded, limited=False))
        return Function.composed(
            grounded,
            {name: bounds for name, bounds in self._init.items() if name in used},
            {name: choices for name, choices in self._choices.items() if name in used},
        )

    @property
    def is_grounded(self) -> bool:
        """Whether it is of the form F(x) - F(0), as `grounded()` writes it."""
        match self.expr:
            case Call("sub", (first, second)):
                return second is _at_zero(first)
            case _:
                return False

    def explain(self, x: Range | None = None) -> Explanation:
        """A report for before training: derivatives, plan, zeros, poles, jumps, overflow, sleep and death.

        **Arguments:**

        - `x`: the range of inputs to examine, and to choose ranges for. Without it, the report has the ranges
            that a layer draws from for standardised inputs, and examines them for x in [-1, 1].
        """
        from ftnn.formula._explain import explain

        return explain(self, x)

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        names = frozenset(self.parameters)  # an expression loses those that fold away
        return canonical(self.expr), names, frozenset(self._choices.items()), frozenset(self.init.items())

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Function) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        init = f", init={self._init!r}" if self._init else ""
        constants = f", constants={self._choices!r}" if self._choices else ""
        try:
            parse(self._formula)
        except FormulaError:  # composed by ftnn, and longer than a user may write
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


def _without_input(formula: str, parameters: tuple[str, ...]) -> FormulaError:
    from ftnn.formula._catalogue import catalogue

    inputs = [name for name in parameters if re.fullmatch(r"x_?\d+|X|y|z", name)]
    if not inputs:
        message = "the formula does not use x, the connection's input"
        if parameters == (formula.strip(),) and parameters[0] in catalogue:
            message += f'; if you mean the function of that name: ftnn.catalogue["{parameters[0]}"]'
        return error_in(formula, message)
    what = f"{inputs[0]} would be a trainable parameter"
    if len(inputs) > 1:
        what = f"{', '.join(inputs[:-1])} and {inputs[-1]} would be trainable parameters"
    return error_in(
        formula,
        f"a connection sees one input, x; {what}. Write the formula of one connection: every input gets its "
        'own, and a unit sums them, or multiplies them with reduce="product" (ftnn.nn.Transfer)',
        inputs[0],
    )


def _at_zero(expr: Expr) -> Expr:
    """`expr` at x = 0, assuming that every factor is finite."""
    return at_zero(expr, drops=lambda _: True)
