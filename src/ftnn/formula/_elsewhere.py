"""Functions that formulas lack, and those that have another name elsewhere, as formulas in `a` and `b`."""

from __future__ import annotations

import re

ELSEWHERE = {
    "acosh": "log(a + sqrt(a**2 - 1))",
    "arccosh": "log(a + sqrt(a**2 - 1))",
    "arcsinh": "sign(a)*log(abs(a) + sqrt(a**2 + 1))",
    "arctanh": "log((1 + a)/(1 - a))/2",
    "asinh": "sign(a)*log(abs(a) + sqrt(a**2 + 1))",
    "atanh": "log((1 + a)/(1 - a))/2",
    "cbrt": "sign(a)*abs(a)**(1/3)",
    "celu": "where(a > 0, a, exp(a) - 1)",
    "clamp": "max(low, min(high, a))",
    "clip": "max(low, min(high, a))",
    "elu": "where(a > 0, a, exp(a) - 1)",
    "erfc": "1 - erf(a)",
    "exp2": "2**a",
    "expit": "logistic(a)",
    "expm1": "exp(a) - 1",
    "fabs": "abs(a)",
    "gaussian": "gauss(a)",
    "gelu": "a*(1 + erf(a/sqrt(2)))/2",
    "hardsigmoid": "max(0, min(1, a/6 + 1/2))",
    "hardswish": "a*max(0, min(1, a/6 + 1/2))",
    "hardtanh": "max(-1, min(1, a))",
    "heaviside": "step(a)",
    "hypot": "sqrt(a**2 + b**2)",
    "identity": "a",
    "leakyrelu": "max(a, 0.01*a)",
    "lg": "log(a)/log(10)",
    "ln": "log(a)",
    "log10": "log(a)/log(10)",
    "log2": "log(a)/log(2)",
    "logsigmoid": "-softplus(-a)",
    "maximum": "max(a, b)",
    "minimum": "min(a, b)",
    "mish": "a*tanh(softplus(a))",
    "pow": "a**b",
    "power": "a**b",
    "ramp": "rect(a)",
    "rectifier": "rect(a)",
    "relu6": "min(relu(a), 6)",
    "rsqrt": "1/sqrt(a)",
    "selu": "1.0507009873554805*where(a > 0, a, 1.6732632423543772*(exp(a) - 1))",
    "sgn": "sign(a)",
    "sigmoid": "logistic(a)",
    "silu": "a*logistic(a)",
    "sinc": "sin(a)/a",
    "softsign": "a/(1 + abs(a))",
    "square": "a**2",
    "squareroot": "sqrt(a)",
    "swish": "a*logistic(a)",
    "tanhshrink": "a - tanh(a)",
}
"""In lower case and without underscores."""


def elsewhere(name: str) -> str | None:
    """The formula in `a` and `b` of a function that is known elsewhere; None if it is unknown."""
    return ELSEWHERE.get(name.lower().replace("_", ""))


def has_no_formula(name: str) -> bool:
    """Whether it is an inverse of a sine, cosine or tangent, which is not to be mistaken for these."""
    return re.fullmatch(r"a(rc)?(sin|cos|tan|cot|sec|csc)2?", name.lower()) is not None


def renamed(formula: str) -> str | None:
    """The name of the one function that `formula` calls on its arguments; None if it is more than that."""
    match = re.fullmatch(r"(\w+)\((?:a|a, b)\)", formula)
    return match and match[1]
