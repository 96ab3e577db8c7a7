"""The target of kernels, and how they are called."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar, Literal, Self, cast, dataclass_transform

DType = Literal["float32", "float64"]


@dataclass(frozen=True)
class Target:
    """A dtype, and the CPU's vectors of it."""

    dtype: DType
    lanes: int
    """The number of elements in a vector."""
    quick_reciprocal: bool = False
    """Whether the CPU has AVX-512's reciprocal, accurate to 14 bits."""

    @property
    def size(self) -> int:
        """The size of a number in bytes."""
        return 8 if self.dtype == "float64" else 4

    def vectors(self, numbers: int) -> int:
        """The number of vectors that hold this many numbers."""
        return -(-numbers // self.lanes)

    def filled(self, numbers: int) -> int:
        """The number, rounded up to whole vectors."""
        return self.vectors(numbers) * self.lanes


@dataclass_transform(kw_only_default=True)
class Args(tuple[int, ...]):
    """The block of 64-bit numbers that a kernel is called with: sizes, addresses and flags.

    A subclass names them, in order, by its annotations. Callers of the kernel pack them by name,
    `ForwardArgs(samples=3, …)`; the kernel finds each by its place, `ForwardArgs.places().samples`. So the
    order is written down only once.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.names = tuple(cls.__annotations__)
        for place, name in enumerate(cls.names):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, **values: int) -> Self:
        try:
            packed = super().__new__(cls, map(values.__getitem__, cls.names))
        except KeyError:
            packed = ()
        if len(packed) != len(values):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls.names)}; got {', '.join(values)}")
        return cast(Self, packed)

    @classmethod
    def places(cls) -> Self:
        """The place of each argument."""
        return cls(**{name: place for place, name in enumerate(cls.names)})
