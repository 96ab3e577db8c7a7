"""Fixed functions with trained amplitudes, as in published KANs."""

from __future__ import annotations

_GAUSSIANS = tuple(f"a{n}*gauss(3.5*x {'-' if n > 3 else '+'} {abs(3.5 - n)})" for n in range(8))
"""Centres from -1 to 1, each function as wide as the distance between two."""
_FOURIER = tuple(f"a{n}*cos({n}*x) + b{n}*sin({n}*x)" for n in range(1, 5))
_CHEBYSHEV = ("a", "b*x", "c*(2*x**2 - 1)", "d*(4*x**3 - 3*x)", "g*(8*x**4 - 8*x**2 + 1)")

TERMS = {"gaussians": _GAUSSIANS, "fourier": _FOURIER, "chebyshev": _CHEBYSHEV}
BASES = {name: " + ".join(terms) for name, terms in TERMS.items()}
