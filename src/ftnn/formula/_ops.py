"""The table of operations: what a formula may contain, and how each target spells it.

A target is a library or language that formulas are translated to. A spelling is the name of the target's own
function ("sin"), or, if the target lacks it, a formula over other rows in the arguments a, b, c
("1/cosh(a)"). To add an operation, add a row; `check` refuses an incomplete table when this file is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TARGETS = ("numpy", "torch", "llvm", "triton", "sympy")
ARGUMENTS = ("a", "b", "c")

Domain = tuple[float, float]
_REAL: Domain = (-2.0, 2.0)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation."""

    name: str
    derivative: tuple[str, ...]
    """The partial derivative with respect to each argument, as a formula in a, b, c."""
    numpy: str
    torch: str
    llvm: str
    triton: str
    sympy: str
    domain: tuple[Domain, ...]
    """For tests: the range of each argument in which the operation and its derivatives are smooth and
    moderate."""
    by_parameter: tuple[str, ...] | None = None
    """Surrogate gradients for parameters, which the paper decrees, if they are not the true derivatives."""
    singular: str = ""
    """The operation is not finite where this formula is zero."""
    jump: str = ""
    """The operation jumps where this formula is zero."""
    symbol: str = ""
    """How it is written if not as a call: "+", "**", "<"."""
    about: str = ""

    @property
    def arity(self) -> int:
        return len(self.domain)

    @property
    def is_comparison(self) -> bool:
        return self.symbol in ("<", "<=", ">", ">=", "==", "!=")

    @property
    def is_callable(self) -> bool:
        """Whether a formula calls it by name."""
        return not self.symbol

    def spelling(self, target: str) -> str:
        return getattr(self, target)

    def derivatives(self, *, by_parameter: bool) -> tuple[str, ...]:
        return self.by_parameter if by_parameter and self.by_parameter is not None else self.derivative


def is_native(spelling: str) -> bool:
    """Whether a spelling is the name of a target's function; else it is a formula."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_0-9]+)?", spelling) is not None


def _infix(
    name: str, symbol: str, derivative: tuple[str, ...], numpy: str, torch: str, sympy: str, **more: Any
) -> Op:
    domain = more.pop("domain", (_REAL,) * len(derivative))
    return Op(name, derivative, numpy, torch, name, name, sympy, domain, symbol=symbol, **more)


def _compare(name: str, symbol: str, numpy: str, sympy: str) -> Op:
    # `where` never needs the slope of a comparison.
    return _infix(name, symbol, ("0", "0"), numpy, f"operator.{name}", sympy)


def _unary(
    name: str,
    derivative: str,
    numpy: str = "",
    torch: str = "",
    llvm: str = "",
    triton: str = "",
    sympy: str = "",
    **more: Any,
) -> Op:
    """A row whose spellings default to the operation's name."""
    domain = (more.pop("domain", _REAL),)
    spellings = (numpy or name, torch or name, llvm or name, triton or f"tl.{name}", sympy or name)
    return Op(name, (derivative,), *spellings, domain, **more)


# NaN stays NaN. Slopes are selected by `where`, not multiplied: 0 times an infinite slope is not 0.
_RECT = "where(a < 0, 0, a)"
_RECT_SLOPE = "where(a < 0, 0, 1)"
_STEP = "where(a < 0, 0, where(a >= 0, 1, a))"
_SIGN = "where(a > 0, 1, where(a < 0, -1, a + 0))"  # torch.sign gives 0 for NaN; a + 0 turns -0 into 0

# Where 1 + a is rounded, the quotient corrects the logarithm of the rounded number. Where 1 + a is exact or
# infinite, no correction is needed.
_LOG1P = "where(1 + a == 1, a, where((1 + a) - 1 == a, log(1 + a), log(1 + a)*(a/((1 + a) - 1))))"
_SECH = "2*exp(-abs(a))/(1 + exp(-2*abs(a)))"  # so that nothing overflows where the value is small
_SOFTPLUS = "max(a, 0) + log1p(exp(-abs(a)))"


def _exp_less_one(u: str) -> str:
    """(u - 1)/log(u) for u = exp(v): times v, this is exp(v) - 1 to full precision, however small v is.

    An error in u cancels, since the logarithm uses the same u. The quotient is 1 where u is 1.
    """
    return f"where({u} == 1, 1, ({u} - 1)/log({u}))"


# Triton lacks sinh, cosh and tanh. The first form is precise near 0; the second does not overflow early.
_HALF = "exp(0.5*abs(a))"
_WHOLE = f"({_HALF}*{_HALF})"
_TRITON_COSH = f"0.5*{_HALF}*{_HALF} + 0.5/{_WHOLE}"
_LARGE_SINH = f"(0.5*{_HALF}*{_HALF} - 0.5/{_WHOLE})"
_TRITON_SINH = (
    f"where(abs(a) < 1, 0.5*a*{_exp_less_one(_WHOLE)}*(1 + 1/{_WHOLE}), "
    f"where(a < 0, -{_LARGE_SINH}, {_LARGE_SINH}))"
)
_SQUARE = "exp(2*abs(a))"
_LARGE_TANH = f"(1 - 2/({_SQUARE} + 1))"
_TRITON_TANH = (
    f"where(abs(a) < 0.5, a*{_exp_less_one(_SQUARE)}/(abs(a)*{_exp_less_one(_SQUARE)} + 1), "
    f"where(a < 0, -{_LARGE_TANH}, {_LARGE_TANH}))"
)
_TRITON_LOGISTIC = "where(a < 0, exp(-abs(a)), 1)/(1 + exp(-abs(a)))"

_ROWS = (
    _infix("add", "+", ("1", "1"), "add", "operator.add", "Add"),
    _infix("sub", "-", ("1", "-1"), "subtract", "operator.sub", "operator.sub"),
    _infix("mul", "*", ("b", "a"), "multiply", "operator.mul", "Mul"),
    _infix("div", "/", ("1/b", "-a/b**2"), "true_divide", "operator.truediv", "operator.truediv",
           domain=(_REAL, (0.5, 2.0)), singular="b"),
    _infix("neg", "-", ("-1",), "negative", "operator.neg", "operator.neg"),
    _infix("pow", "**", ("b*a**(b - 1)", "where(a == 0, 0, a**b*log(a))"), "power", "pow", "Pow",
           domain=((0.5, 2.0), (-2.0, 2.0)), singular="where(b < 0, a, 1)",
           about="a power; with an integer constant as exponent, the base may be negative"),
    _compare("lt", "<", "less", "Lt"),
    _compare("le", "<=", "less_equal", "Le"),
    _compare("gt", ">", "greater", "Gt"),
    _compare("ge", ">=", "greater_equal", "Ge"),
    _compare("eq", "==", "equal", "Eq"),
    _compare("ne", "!=", "not_equal", "Ne"),
    Op("where", ("0", "where(a, 1, 0)", "where(a, 0, 1)"), "where", "where", "where", "tl.where", "where",
       (_REAL, _REAL, _REAL), about="b where the condition a holds, else c"),
    _unary("exp", "exp(a)"),
    _unary("log", "1/a", domain=(0.3, 3.0), singular="a"),
    _unary("log1p", "1/(1 + a)", llvm=_LOG1P, triton=_LOG1P, sympy="log(1 + a)", domain=(-0.5, 3.0),
           singular="1 + a", about="log(1 + a), accurate for small a"),
    _unary("sqrt", "1/(2*sqrt(a))", domain=(0.3, 3.0)),
    _unary("abs", "sign(a)", sympy="Abs", domain=(0.2, 2.0)),
    _unary("sign", "0", torch=_SIGN, triton=_SIGN, domain=(0.2, 2.0), jump="a"),
    _unary("sin", "cos(a)"),
    _unary("cos", "-sin(a)"),
    _unary("tan", "1 + tan(a)**2", triton="sin(a)/cos(a)", domain=(-1.0, 1.0), singular="cos(a)"),
    _unary("cot", "-(1 + cot(a)**2)", "1/tan(a)", "1/tan(a)", triton="cos(a)/sin(a)", domain=(0.5, 2.5),
           singular="sin(a)"),
    _unary("sec", "sec(a)*tan(a)", "1/cos(a)", "1/cos(a)", triton="1/cos(a)", domain=(-1.0, 1.0),
           singular="cos(a)"),
    _unary("csc", "-csc(a)*cot(a)", "1/sin(a)", "1/sin(a)", triton="1/sin(a)", domain=(0.5, 2.5),
           singular="sin(a)"),
    _unary("sinh", "cosh(a)", triton=_TRITON_SINH),
    _unary("cosh", "sinh(a)", triton=_TRITON_COSH),
    _unary("tanh", "1 - tanh(a)**2", triton=_TRITON_TANH),
    _unary("coth", "1 - coth(a)**2", "1/tanh(a)", "1/tanh(a)", triton="1/tanh(a)", domain=(0.5, 2.0),
           singular="a"),
    _unary("sech", "-sech(a)*tanh(a)", _SECH, _SECH, triton=_SECH),
    _unary("csch", "-csch(a)*coth(a)", "1/sinh(a)", "1/sinh(a)", triton="1/sinh(a)", domain=(0.5, 2.0),
           singular="a"),
    _unary("logistic", "logistic(a)*(1 - logistic(a))", "special.expit", "sigmoid", triton=_TRITON_LOGISTIC,
           sympy="1/(1 + exp(-a))", about="1/(1 + exp(-a))"),
    _unary("softplus", "logistic(a)", _SOFTPLUS, _SOFTPLUS, triton=_SOFTPLUS, sympy="log(1 + exp(a))",
           about="log(1 + exp(a))"),
    _unary("gauss", "-2*a*gauss(a)", "exp(-(a*a))", "exp(-(a*a))", triton="exp(-(a*a))", sympy="exp(-a**2)",
           about="exp(-a**2)"),
    _unary("erf", "1.1283791670955126*gauss(a)", "special.erf"),
    _unary("rect", _RECT_SLOPE, _RECT, _RECT, triton=_RECT, sympy="max(0, a)", domain=(0.2, 2.0),
           about="a where a >= 0, else 0; slope 1 at 0"),
    _unary("rect_ada", _RECT_SLOPE, _RECT, _RECT, "rect", _RECT, sympy="max(0, a)", domain=(0.2, 2.0),
           by_parameter=("1",),
           about="rect with a surrogate gradient of 1 for parameters, which lets dead connections revive"),
    _unary("relu", "where(a <= 0, 0, 1)", _RECT, _RECT, "rect", _RECT, sympy="max(0, a)", domain=(0.2, 2.0),
           about="rect with slope 0 at 0, as in torch"),
    _unary("step", "0", _STEP, _STEP, _STEP, _STEP, sympy="where(a >= 0, 1, 0)", domain=(0.2, 2.0), jump="a",
           about="1 where a >= 0, else 0"),
    Op("min", ("where(a <= b, 1, 0)", "where(a <= b, 0, 1)"), "minimum", "minimum", "minimum", "tl.minimum",
       "Min", ((-2.0, -0.1), (0.1, 2.0)), about="the smaller; NaN stays NaN"),
    Op("max", ("where(a >= b, 1, 0)", "where(a >= b, 0, 1)"), "maximum", "maximum", "maximum", "tl.maximum",
       "Max", ((0.1, 2.0), (-2.0, -0.1)), about="the larger; NaN stays NaN"),
)  # fmt: skip


def check(rows: Iterable[Op]) -> Mapping[str, Op]:
    """The rows by name. Raises `ValueError` for a missing spelling, derivative or domain, or a duplicate."""
    table: dict[str, Op] = {}
    for row in rows:
        if row.name in table:
            raise ValueError(f"operation {row.name!r} is in the table twice")
        if missing := [target for target in TARGETS if not row.spelling(target)]:
            raise ValueError(f"operation {row.name!r} has no spelling for {', '.join(missing)}")
        if not 1 <= row.arity <= len(ARGUMENTS) or any(low >= high for low, high in row.domain):
            raise ValueError(f"operation {row.name!r} has no usable test domain: {row.domain}")
        for rules in (row.derivative, row.derivatives(by_parameter=True)):
            if len(rules) != row.arity or not all(rules):
                raise ValueError(f"operation {row.name!r} has {row.arity} arguments, but slopes {rules}")
        table[row.name] = row
    return MappingProxyType(table)


OPS = check(_ROWS)
"""Every operation by name."""

FUNCTIONS = tuple(sorted(name for name, op in OPS.items() if op.is_callable))
"""The names that a formula may call."""
