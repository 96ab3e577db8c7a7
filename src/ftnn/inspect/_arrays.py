"""Networks as NumPy code on arrays: a few lines for each layer, and its matrices."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from ftnn import _atomic
from ftnn.data._masked import unmasked
from ftnn.errors import FtnnError, ModelFileError, ShapeError
from ftnn.formula._expr import INPUT, Expr
from ftnn.formula._numpy import Array, evaluate
from ftnn.inspect._layers import connection_list, describe, layers_of
from ftnn.inspect._numpy_code import function_code
from ftnn.inspect._prune import prune
from ftnn.inspect._stages import Stage, check_digits, check_width, rounded, stages_of, width_of
from ftnn.nn import Partial, folded
from ftnn.nn._activations import activation_formula
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._folding import affine_of

PRUNED = 0.9
"""The share of dead connections from which a layer becomes a list: below, whole matrices are faster."""
SHORT = 200
"""Numbers up to which arrays are written as numbers, for reading."""

_HEAD = """\
import numpy as np
{imports}
{arrays}
ROWS, VALUES = 256, 2**16  # at once: samples, and values of connections


def network(x):
    \"""(…, {inputs}) → (…, {outputs}), in {dtype}.\"""
    x = np.asarray(x, dtype=np.{dtype})
    rows = x.reshape(-1, {inputs})
    y = np.empty((len(rows), {outputs}), dtype=x.dtype)
    with np.errstate(all="ignore"):
        for first in range(0, len(rows), ROWS):
            y[first : first + ROWS] = units(np.ascontiguousarray(rows[first : first + ROWS].T)).T
    return y.reshape(*x.shape[:-1], {outputs})
"""
_TOTAL = """\
def total(f, x, *parameters, op=np.add):
    \"""The sum of f over the inputs: x is (in, rows), each parameter (in, out), the result (out, rows).\"""
    out, rows = parameters[0].shape[1], x.shape[1]
    y = np.full((out, rows), op.identity, dtype=x.dtype)
    step = max(1, VALUES // (out * rows))
    for first in range(0, len(x), step):
        part = slice(first, first + step)
        values = f(x[part, None, :], *(p[part, :, None] for p in parameters))
        y = op(y, op.reduce(np.broadcast_to(values, (len(x[part]), out, rows)), axis=0))
    return y
"""
_LISTED = """\
def listed(f, x, inputs, outputs, out, *parameters, op=np.add):
    \"""The same for a list of connections: each parameter is (connections,).\"""
    y = np.full((out, x.shape[1]), op.identity, dtype=x.dtype)
    step = max(1, VALUES // x.shape[1])
    for first in range(0, len(inputs), step):
        part = slice(first, first + step)
        values = f(x[inputs[part]], *(p[part, None] for p in parameters))
        ends, starts = np.unique(outputs[part], return_index=True)
        values = np.broadcast_to(values, (len(inputs[part]), x.shape[1]))
        y[ends] = op(y[ends], op.reduceat(values, starts, axis=0))
    return y
"""


def numpy(
    net: nn.Module, digits: int | None = None, dtype: Literal["float64", "float32"] = "float64"
) -> NumpyNetwork:
    """A network as a function of NumPy arrays, (…, in_features) → (…, out_features).

    It needs no torch: `.source` is its code, `.save("model.py")` writes it with its matrices, for use without
    ftnn. It works for any size; memory does not grow with the number of samples.

    **Arguments:**

    - `net`: as for [`ftnn.inspect.sympy`][].
    - `digits`: round parameters to this many significant digits; by default they are exact.
    - `dtype`: what it computes in. `"float32"`, as torch does, is several times as fast, and more for
        sin and cos.
    """
    check_digits(digits)
    if dtype not in ("float64", "float32"):
        raise FtnnError(f"dtype={dtype!r} must be 'float64' or 'float32'")
    layers_of(net)  # refuses networks with memory or without functions
    stages = stages_of(folded(prune(net, PRUNED).double()))  # in float64, so that folding loses no digits
    writer = _Writer(digits)
    inputs = next(width for stage in stages if (width := width_of(stage)) is not None)
    width = inputs
    for stage in stages:
        width = writer.write(stage, width)
    arrays = {
        name: array if array.dtype.kind == "i" else array.astype(dtype)
        for name, array in writer.arrays.items()
    }
    return NumpyNetwork(inputs, width, tuple(writer.functions), tuple(writer.lines), arrays, dtype)


@dataclass(frozen=True)
class NumpyNetwork:
    """A network as NumPy code."""

    in_features: int
    out_features: int
    functions: tuple[str, ...]
    """The code of each function on connections or units."""
    lines: tuple[str, ...]
    """The steps from inputs to outputs; `x` is (units, rows)."""
    arrays: dict[str, Any]
    """The parameters, by name."""
    dtype: str = "float64"

    def __call__(self, x: Any) -> Any:
        """(…, in_features) → (…, out_features)."""
        x = np.asarray(unmasked(x, "x"), dtype=self.dtype)
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ShapeError(f"x must have shape (…, {self.in_features}), not {x.shape}")
        return self._network(x)

    @cached_property
    def _network(self) -> Any:
        namespace: dict[str, Any] = {"A": self.arrays}
        exec(self._code(""), namespace)  # written here, from operations and names that the parser allows
        return namespace["network"]

    @property
    def source(self) -> str:
        """Python code with all parameters, which needs only NumPy (and SciPy for erf and logistic)."""
        if sum(array.size for array in self.arrays.values()) <= SHORT:
            texts = (
                f"    {name!r}: np.array({array.tolist()!r}, dtype=np.{array.dtype}),"
                for name, array in self.arrays.items()
            )
            return self._code("\n".join(("A = {", *texts, "}")))
        text = base64.b64encode(self._npz()).decode()
        pieces = (f'    "{text[n : n + 100]}"' for n in range(0, len(text), 100))
        return self._code("\n".join(("DATA = (", *pieces, ")", *_LOAD)), "import base64\nimport io\n")

    def save(self, path: Any) -> None:
        """Write the code to a `.py` file, and the parameters to an `.npz` file beside it."""
        file = Path(path)
        if file.suffix != ".py":
            raise ModelFileError(f"the code of a network needs a name that ends in .py, not {str(path)!r}")
        arrays = "A = dict(np.load(Path(__file__).with_suffix('.npz')))"
        _atomic.write_or_explain(file.with_suffix(".npz"), self._npz(), ModelFileError)
        code = self._code(arrays, "from pathlib import Path\n")
        _atomic.write_or_explain(file, code.encode(), ModelFileError)

    def _npz(self) -> bytes:
        content = io.BytesIO()
        np.savez(content, **self.arrays)  # pyright: ignore[reportArgumentType]
        return content.getvalue()

    def _code(self, arrays: str, imports: str = "") -> str:
        functions, lines = "\n\n\n".join(self.functions), "\n".join(f"    {line}" for line in self.lines)
        scipy = "from scipy import special\n" if "special." in functions else ""
        sizes = {"inputs": self.in_features, "outputs": self.out_features, "dtype": self.dtype}
        head = _HEAD.format(imports=imports + scipy, arrays=arrays, **sizes)
        units = f'def units(x):\n    """({self.in_features}, rows) → ({self.out_features}, rows)."""\n{lines}'
        helpers = [text for name, text in (("total(", _TOTAL), ("listed(", _LISTED)) if name in lines]
        parts = (head.rstrip(), f"{units}\n    return x", functions, *(text.rstrip() for text in helpers))
        return "\n\n\n".join(filter(None, parts)) + "\n"


_LOAD = ("A = dict(np.load(io.BytesIO(base64.b64decode(DATA))))",)


class _Writer:
    """Writes the code of stages, one after the other."""

    def __init__(self, digits: int | None):
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.arrays: dict[str, Array] = {}
        self._digits = digits

    def write(self, stage: Stage, width: int) -> int:
        """Add a stage after `width` units; returns how many it has."""
        check_width(stage, width)
        match stage:
            case str():
                self.lines.append(f"x = {self._function(activation_formula(stage).value, [INPUT])}(x)")
            case nn.Linear():
                self.lines.append(f"x = {self._array('weight', stage.weight, stage)} @ x")
                self._affine(None, stage.bias, stage)
                return stage.out_features
            case nn.BatchNorm1d():
                affine = affine_of(stage, width)
                assert affine is not None  # checked
                self._affine(*affine, stage)
            case nn.LayerNorm():
                self.lines += ["x = x - x.mean(0)", f"x = x/np.sqrt((x*x).mean(0) + {stage.eps!r})"]
                self._affine(stage.weight, stage.bias, stage)
            case FeedForward():
                self._transfer(stage)
                self._affine(stage.scale, stage.bias, stage)
                return stage.out_features
        return width

    def _transfer(self, layer: FeedForward) -> None:
        function = layer.function
        names = (*function.parameters, *function.constants)
        is_product = layer.reduce == "product"
        by = ("op=np.multiply",) if is_product else ()
        if isinstance(layer, Partial):
            connections = connection_list(layer)
            ends = (("inputs", connections.inputs), ("outputs", connections.outputs))
            lists = [self._keep(name, value.cpu().numpy()) for name, value in ends]
            matrices = [self._array(name, connections.values[name], layer) for name in names]
            f = self._function(function.expr, [INPUT, *names])
            self.lines.append(
                f"x = listed({f}, x, {', '.join((*lists, str(layer.out_features), *matrices, *by))})"
            )
            return
        values = {
            name: self._numbers(matrix, layer) for name, matrix in zip(names, layer.matrices(), strict=True)
        }
        plan = function.plan
        if plan.kind != "gemm" or not plan.exact or is_product:
            matrices = [self._keep(name, matrix) for name, matrix in values.items()]
            f = self._function(function.expr, [INPUT, *names])
            self.lines.append(f"x = total({f}, x, {', '.join((*matrices, *by))})")
            return
        shape = (layer.in_features, layer.out_features)
        terms: list[str] = []
        for g, h in plan.terms:
            matrix = np.broadcast_to(evaluate(g, values), shape).T
            terms.append(f"{self._keep('g', matrix)} @ {self._function(h, [INPUT])}(x)")
        if plan.common is not None:
            terms.append(f"{self._function(plan.common, [INPUT])}(x).sum(0)")
        if plan.constant is not None:
            sums = np.broadcast_to(evaluate(plan.constant, values), shape).sum(0)
            terms.append(self._keep("constant", sums[:, None]))
        if not plan.terms:
            terms.append(f"np.zeros(({layer.out_features}, 1))")
        self.lines.append(f"x = {' + '.join(terms)}")

    def _affine(self, scale: Any, shift: Any, stage: nn.Module) -> None:
        for name, sign, vector in (("scale", "*", scale), ("bias", "+", shift)):
            if vector is not None:
                self.lines.append(f"x = x {sign} {self._array(name, vector[:, None], stage)}")

    def _function(self, expr: Expr, arguments: list[str]) -> str:
        """The name of a function that computes `expr`; equal ones are written once."""
        for n, written in enumerate(self.functions):
            if written == "\n".join(function_code(f"f{n}", expr, arguments)):
                return f"f{n}"
        name = f"f{len(self.functions)}"
        self.functions.append("\n".join(function_code(name, expr, arguments)))
        return name

    def _array(self, name: str, tensor: Any, stage: nn.Module) -> str:
        return self._keep(name, self._numbers(tensor, stage))

    def _numbers(self, tensor: Any, stage: nn.Module) -> Array:
        array = tensor.detach().double().cpu().numpy()
        if not np.isfinite(array).all():
            name = describe(stage) if isinstance(stage, FeedForward) else type(stage).__name__
            value = float(array[~np.isfinite(array)][0])
            raise FtnnError(f"a parameter of {name} is {value}; expected finite numbers")
        if self._digits is None:
            return array
        return np.array([rounded(value, self._digits) for value in array.ravel().tolist()]).reshape(
            array.shape
        )

    def _keep(self, name: str, array: Array) -> str:
        """Code for an array, kept under a new name: `p` and a number."""
        key = f"{name}_{sum(key.rpartition('_')[0] == name for key in self.arrays)}"
        self.arrays[key] = np.ascontiguousarray(array)
        return f"A[{key!r}]"
