"""The base of all layers of functions: matrices of parameters and constants, and their initial values."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.errors import DTypeError, FtnnError, ShapeError
from ftnn.formula import Function, Mixed, as_function, name_of
from ftnn.formula._balance import balanced
from ftnn.formula._inputs import Inputs
from ftnn.formula._ranges import Range
from ftnn.kernels import BACKENDS, Backend
from ftnn.nn._inputs import check_generator
from ftnn.nn._matrices import Matrices
from ftnn.nn._precision import DTYPES

AnyFunction = str | Function | Mixed


class Connections(nn.Module):
    """A functional transfer matrix: one function for every pair of an input and an output."""

    in_features: int
    out_features: int
    function: Function
    """The function of every connection; for a mixed matrix, one that selects by the constant `kind`."""
    kinds: tuple[Function, ...]
    """The functions in the matrix: one, unless it is mixed."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        function: AnyFunction,
        *,
        bias: bool,
        device: Any,
        dtype: torch.dtype | None,
        backend: Backend,
        places: tuple[Tensor, Tensor] | None = None,
    ):
        super().__init__()
        in_features, out_features = size("in_features", in_features), size("out_features", out_features)
        if backend not in BACKENDS:
            raise FtnnError(f"unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
        if dtype is not None and dtype not in DTYPES:
            known = ", ".join(map(str, DTYPES))
            raise DTypeError(f"dtype must be a floating-point dtype, one of {known}, not {dtype!r}")
        self.in_features = in_features
        self.out_features = out_features
        self.backend: Backend = backend
        self._mixed = function if isinstance(function, Mixed) else None
        self.function = function.function if isinstance(function, Mixed) else as_function(function)
        self.kinds = function.functions if isinstance(function, Mixed) else (self.function,)
        if self._mixed is not None:
            self._mixed.kinds(in_features, out_features)  # refuses a wrong shape, on any device

        shape: tuple[int, ...] = (in_features, out_features)
        if places is not None:  # the input and output of each connection, instead of a whole matrix
            for name, place in zip(("inputs", "outputs"), places, strict=True):
                self.register_buffer(name, place.to(device, torch.int32, copy=True))
            shape = (len(places[0]),)

        def matrix() -> Tensor:
            return torch.empty(shape, device=device, dtype=dtype)

        self.theta = Matrices({name: nn.Parameter(matrix()) for name in self.function.parameters})
        self.constants = Matrices({name: matrix() for name in self.function.constants})
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self._ranges: tuple[Mapping[str, Range], ...] = ()
        """The initial ranges of each kind's parameters; empty until they are chosen."""
        self._expects: tuple[Inputs | None, int] = (None, 1)
        """What to choose them for: the inputs, and the number of such layers that follow each other."""
        self._drawn: int | None = None
        """The fingerprint of the parameters when they were drawn."""
        self.reset_parameters()

    @property
    def ranges(self) -> Any:
        """The ranges that parameters are drawn from, by name; for a mixed matrix, a list with one dictionary
        for each kind."""
        if not self._ranges:
            self._choose_ranges(self.kinds, *self._expects)
        every = [dict(ranges) for ranges in self._ranges]
        return every if self._mixed is not None else every[0]

    def _choose_ranges(self, kinds: Sequence[Function], inputs: Inputs | None, layers: int) -> None:
        """Choose the ranges that `kinds`, the layer's own or the same with other ranges, do not give."""
        self._ranges = tuple(balanced(kind, self.in_features, inputs, layers).ranges for kind in kinds)

    def _draw_for(
        self, x: Tensor, kinds: Sequence[Function], generator: torch.Generator | None, layers: int = 1
    ) -> int:
        """Choose ranges for inputs, (samples, in), and draw the parameters again; returns the seed.

        **Arguments:**

        - `kinds`: the layer's own, or the same with other ranges.
        """
        check_generator(generator)
        self._choose_ranges(kinds, Inputs.of(x.double().cpu().numpy()), layers)
        device = "cpu" if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        self._draw_from(seed)
        return seed

    def _draw_from(self, seed: int) -> None:
        self._draw(torch.Generator(self._first.device).manual_seed(seed))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw parameters from their initial ranges and constants from their values; set the bias to 0.

        Kinds that were assigned stay; random ones are drawn again.
        """
        self._draw(generator)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator | None) -> None:
        check_generator(generator)
        if self._first.is_meta:
            return
        if not self._ranges:
            self._choose_ranges(self.kinds, *self._expects)
        kind = self._reset_kinds(generator)
        # In alphabetical order, so that equal functions draw equal numbers, however they are written.
        for name in sorted(self.function.parameters):
            _fill(self.theta[name], kind, [ranges.get(name) for ranges in self._ranges], _uniform, generator)
        for name in sorted(self.function.constants):
            if name != self._kind_name:
                values = [f.choices.get(name) for f in self.kinds]
                _fill(self.constants[name], kind, values, _chosen, generator)
        if self.bias is not None:
            self.bias.zero_()
        self._drawn = self._fingerprint()

    @property
    def is_untouched(self) -> bool:
        """Whether the parameters are still the ones drawn at random: not trained, loaded or set."""
        return self._drawn is not None and self._drawn == self._fingerprint()

    def _fingerprint(self) -> int | None:
        return fingerprint([*self.theta.tensors(), *([] if self.bias is None else [self.bias])])

    def _reset_kinds(self, generator: torch.Generator | None) -> Tensor | None:
        """The kind of every entry, (in, out); None if there is only one."""
        if self._kind_name is None or self._mixed is None:
            return None
        kind = self.constants[self._kind_name]
        kinds = self._mixed.kinds(self.in_features, self.out_features)
        if kinds is None:
            _chosen(kind, tuple(float(n) for n in range(len(self.kinds))), generator)
        else:
            kind.copy_(torch.from_numpy(kinds.T.copy()))
        return kind

    @property
    def _kind_name(self) -> str | None:
        """The constant that holds the kind of each entry; None if there is only one kind."""
        return self._mixed.kind_name if self._mixed is not None and len(self.kinds) > 1 else None

    @property
    def _first(self) -> Tensor:
        return self.theta[self.function.parameters[0]]

    def matrices(self) -> list[Tensor]:
        """Parameters, then constants, each (in, out), as kernels take them."""
        return self.theta.tensors() + self.constants.tensors()

    def matrix(self, name: str, kind: AnyFunction | int | None = None) -> Tensor:
        """A parameter or constant as the paper indexes it.

        **Arguments:**

        - `name`: its name, such as `"p"`.
        - `kind`: for a mixed matrix, one of its functions or its number: entries of other kinds become NaN.

        Returns (out, in): a view, writable under `torch.no_grad()`; a copy if a kind is selected.
        """
        stored = self._stored(name)
        return stored.T if kind is None else self._of_kind(stored, name, kind).T

    def _of_kind(self, stored: Tensor, name: str, kind: AnyFunction | int) -> Tensor:
        """A copy in which entries of other kinds are NaN."""
        number = self._kind_number(kind)
        if name not in (*self.kinds[number].parameters, *self.kinds[number].constants):
            raise FtnnError(f"the kind {self.kinds[number].formula!r} has no {name!r}")
        if self._kind_name is None:
            return stored.clone()
        return torch.where(self.constants[self._kind_name] == number, stored, torch.nan)

    def uses(self, name: str) -> Tensor:
        """Whether the kind of each connection has this parameter, in the parameter's own shape, bool."""
        has = torch.tensor([name in kind.parameters for kind in self.kinds])
        if self._kind_name is None:
            return has.expand(self.theta[name].shape)
        return has[self.constants[self._kind_name].cpu().long()]

    def _stored(self, name: str) -> Tensor:
        source = self.theta if name in self.theta else self.constants
        if name not in source:
            known = ", ".join((*self.theta, *self.constants))
            raise FtnnError(f"this layer has no parameter or constant {name!r}; it has {known}")
        return source[name]

    def _kind_number(self, kind: AnyFunction | int) -> int:
        if isinstance(kind, int):
            if 0 <= kind < len(self.kinds):
                return kind
        elif not isinstance(kind, Mixed):
            function = as_function(kind)
            if function in self.kinds:
                return self.kinds.index(function)
        raise FtnnError(f"{kind!r} is not a kind of this layer; it has {', '.join(map(_label, self.kinds))}")

    def extra_repr(self) -> str:
        """The arguments in `repr`."""
        kinds = ", ".join(map(_label, self.kinds))
        function = f"[{kinds}]" if self._mixed is not None else kinds
        backend = "" if self.backend == "auto" else f", backend={self.backend!r}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, function={function}, "
            f"bias={self.bias is not None}{backend}"
        )


def fingerprint(tensors: Iterable[Tensor]) -> int | None:
    """Identifies the values of parameters, in any floating-point dtype of enough digits; None without
    values."""
    total = 0
    for tensor in tensors:
        if tensor.is_meta:
            return None
        total = zlib.crc32(tensor.detach().float().cpu().numpy().tobytes(), total)
    return total


def size(name: str, value: Any) -> int:
    """`value` as a number of inputs or outputs."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ShapeError(f"{name} must be a positive integer, not {value!r}")
    return number


def _label(function: Function) -> str:
    if torch.compiler.is_dynamo_compiling():  # vmap needs a repr, but comparing functions takes a lock
        return repr(function.formula)
    return name_of(function) or repr(function.formula)


Draw = Callable[[Tensor, Any, "torch.Generator | None"], None]


def _fill(
    target: Tensor, kind: Tensor | None, ranges: list[Any], draw: Draw, generator: torch.Generator | None
) -> None:
    """Fill a matrix, each kind's entries from its own range; entries that a kind does not use stay 0."""
    if kind is None:
        draw(target, ranges[0], generator)
        return
    target.zero_()
    for number, range_of_kind in enumerate(ranges):
        if range_of_kind is not None:
            drawn = torch.empty_like(target)
            draw(drawn, range_of_kind, generator)
            target.copy_(torch.where(kind == number, drawn, target))


def _uniform(target: Tensor, bounds: tuple[float, float], generator: torch.Generator | None) -> None:
    low, high = bounds
    what = f"the initial range ({low:g}, {high:g}), or its width,"
    _check_size(what, (low, high, high - low), target.dtype)
    target.uniform_(low, high, generator=generator)


def _chosen(target: Tensor, values: tuple[float, ...], generator: torch.Generator | None) -> None:
    _check_size(f"a constant of {max(values, key=abs):g}", values, target.dtype)
    picks = torch.randint(len(values), target.shape, generator=generator, device=target.device)
    target.copy_(torch.tensor(values, dtype=target.dtype, device=target.device)[picks])


def _check_size(what: str, numbers: tuple[float, ...], dtype: torch.dtype) -> None:
    """Raise an error if a dtype would turn a number into infinity."""
    largest = torch.finfo(dtype).max
    if any(abs(number) > largest for number in numbers):
        raise FtnnError(f"{what} exceeds the largest number of {dtype}, {largest:.3g}")
