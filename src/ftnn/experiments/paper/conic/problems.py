"""The paper's statements about conic hypersurfaces as problems: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Vector = tuple[float, ...]


@dataclass(frozen=True)
class Quadric:
    """The points with Σ signs·((x - centre)/axes)² < 1: an ellipse, or between a hyperbola's branches."""

    centre: Vector
    axes: Vector
    """The semi-axes."""
    signs: Vector
    """All 1 for an ellipse, mixed for a hyperbola."""

    def value(self, points: Array) -> Array:
        """(n, dimension) → (n,): below 1 inside."""
        return (np.array(self.signs) * ((points - np.array(self.centre)) / np.array(self.axes)) ** 2).sum(-1)

    def contains(self, points: Array) -> Array:
        return self.value(points) < 1


@dataclass(frozen=True)
class Problem:
    """A region to build, to learn or to check."""

    title: str
    about: str
    kind: Literal["built", "learned", "rays"]
    function: str
    signs: Vector
    """The constant u of each connection of a unit; all 1 for F19, which has none."""
    regions: tuple[Quadric, ...] = ()
    """In the plane: points in any of these are inside."""
    window: tuple[float, float] = (-3.0, 3.0)
    """The range of points on both axes."""
    units: int = 1
    gamma: float = -5
    epochs: tuple[int, int] = (100, 100)

    @property
    def dimension(self) -> int:
        return len(self.signs)

    @property
    def is_closed(self) -> bool:
        """Whether a unit's region is bounded: all signs are equal."""
        return len(set(self.signs)) == 1

    def truth(self, points: Array) -> Array:
        """(n, 2) → (n,): whether each point is inside."""
        return np.any([region.contains(points) for region in self.regions], axis=0)


# The paper's matrix, its section on conic hypersurfaces: semi-axes are 1/p, centres are q, biases are -1.
PAPER_P = ((0.50, 1.41), (1.33, 0.67), (1.00, 1.00))
PAPER_Q = ((2.00, 3.00), (2.50, 2.00), (3.00, 4.00))
PAPER_BIAS = -1.0
PAPER_OUTPUT = (-1.0, 2.5)
"""The weight of all hidden units in the output, and its bias."""

_PLANE = (1.0, 1.0)
_PAPERS = tuple(
    Quadric(centre=q, axes=tuple(1 / each for each in p), signs=_PLANE)
    for p, q in zip(PAPER_P, PAPER_Q, strict=True)
)
_ELLIPSE = Quadric(centre=(0.5, -0.4), axes=(1.6, 0.8), signs=_PLANE)
_HYPERBOLA = Quadric(centre=(0.4, -0.3), axes=(0.8, 1.2), signs=(1.0, -1.0))


def _rays(function: str, signs: Vector) -> Problem:
    is_closed, dimension = len(set(signs)) == 1, len(signs)
    result = (
        "each ray leaves the region once."
        if is_closed
        else "rays leave the region or stay in it forever, depending on their direction."
    )
    units = f"Random units with p ≠ 0 and a negative bias in {dimension} dimensions"
    return Problem(
        f"{function} in {dimension} dimensions: {'closed' if is_closed else 'unbounded'}",
        f"{units}; rays from their centres: {result}",
        "rays",
        function,
        signs,
        units=8,
    )


def _learned(
    title: str,
    about: str,
    regions: tuple[Quadric, ...],
    function: str = "F19",
    signs: Vector = _PLANE,
    **more: Any,
) -> Problem:
    return Problem(title, about, "learned", function, signs, regions, **more)


PROBLEMS: Mapping[str, Problem] = MappingProxyType(
    {
        "three-ellipses": Problem(
            "The paper's three ellipses",
            "The network given in the paper: each hidden unit is 0 inside one ellipse, and the output is 1 "
            "inside any of them.",
            "built",
            "F19",
            _PLANE,
            _PAPERS,
            (0.0, 5.0),
            units=3,
        ),
        "learn-three-ellipses": _learned(
            "Three ellipses learned",
            "The same region, learned from points by 3 hidden units of F19.",
            _PAPERS,
            window=(0.0, 5.0),
            units=3,
            gamma=-4,
            epochs=(300, 100),
        ),
        "learn-ellipse": _learned(
            "An ellipse learned", "Learned from points by one hidden unit of F19.", (_ELLIPSE,)
        ),
        "learn-hyperbola": _learned(
            "A hyperbola learned",
            "Learned from points by one hidden unit of F20 with u = (1, -1), as in the paper.",
            (_HYPERBOLA,),
            function="F20",
            signs=(1.0, -1.0),
        ),
        "hyperbola-without-signs": _learned(
            "A hyperbola, without signs",
            "The same points with one hidden unit of F19, whose boundary is closed: the best it finds is a "
            "strip, with a p near 0.",
            (_HYPERBOLA,),
        ),
        "closed-3": _rays("F19", (1.0,) * 3),
        "closed-5": _rays("F19", (1.0,) * 5),
        "open-3": _rays("F20", (1.0, 1.0, -1.0)),
        "open-5": _rays("F20", (1.0, 1.0, -1.0, 1.0, -1.0)),
    }
)
