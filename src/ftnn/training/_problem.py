"""The data to learn from, checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from ftnn.data._masked import unmasked
from ftnn.errors import DataError, DTypeError, FtnnError, ShapeError
from ftnn.kernels.codegen.target import DType
from ftnn.training._checks import quoted
from ftnn.training._losses import LOGISTIC, NAMES, SOFTMAX, LossFormula, loss_formula
from ftnn.training.compiled.buffers import Samples, Targets

Array = np.ndarray[Any, np.dtype[Any]]
Loss = str
"""A name or a formula: see `_losses.py`."""


@dataclass(frozen=True)
class Problem:
    """Samples with their labels or targets, and optional test data."""

    x: Array
    """(samples, in), in the network's dtype."""
    y: Array
    """(samples,) int64 labels, or (samples, out) targets."""
    loss: Loss
    outputs: int
    weights: Array | None = None
    test_x: Array | None = None
    test_y: Array | None = None
    batches: Any = None
    """An iterable of mini-batches, the first being `x`, `y` and `weights`; None if they are all the data."""

    @property
    def dtype(self) -> DType:
        return "float64" if self.x.dtype == np.float64 else "float32"

    @cached_property
    def formula(self) -> LossFormula:
        return loss_formula(self.loss)

    @property
    def is_classification(self) -> bool:
        return self.loss == SOFTMAX

    def check_start(self, predict: Callable[[Array], Array]) -> None:
        """Raise a `FormulaError` if the user's loss is not finite at what an untrained network predicts."""
        if self.loss not in NAMES:
            self.formula.check_start(torch.from_numpy(predict(self.x)), torch.from_numpy(self.y))

    def samples(self, x: Array) -> Samples:
        """`x` as compiled epochs read it. The slow conversion is cached for the problem's own data."""
        if x is self.x:
            return self._samples
        return self._test_samples if x is self.test_x else Samples.of(x, self.dtype)

    @cached_property
    def _samples(self) -> Samples:
        return Samples.of(self.x, self.dtype)

    @cached_property
    def _test_samples(self) -> Samples:
        assert self.test_x is not None
        return Samples.of(self.test_x, self.dtype)

    @cached_property
    def targets(self) -> Targets:
        """Labels or targets as compiled steps read them."""
        make = Targets.labels if self.is_classification else Targets.numbers
        return make(self.y, self.outputs, len(self.y), self.dtype, self.weights)

    def arrays(self) -> dict[str, Array]:
        """The arrays that are present, by name."""
        arrays = {
            "x": self.x,
            "y": self.y,
            "sample_weight": self.weights,
            "test x": self.test_x,
            "test y": self.test_y,
        }
        return {name: array for name, array in arrays.items() if array is not None}

    def identity(self) -> dict[str, str]:
        """Identifies this problem: the loss, and the dtype, shape and SHA-256 of each array."""
        identity: dict[str, str] = {"loss": self.loss}
        for name, array in self.arrays().items():
            content = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
            identity[name] = f"{array.dtype} {array.shape} {content}"
        return identity

    def digest_in_0_1(self) -> str:
        """The digest of all data, as ftnn 0.1 wrote it into checkpoints."""
        digest = hashlib.sha256(f"{self.loss} {self.outputs}".encode())
        for array in self.arrays().values():
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def problem_for(net: Any, kinds: tuple[type[nn.Module], ...], x: Any, y: Any, **more: Any) -> Problem:
    """The problem for a network, which must be of one of these types; see `make_problem`."""
    if not isinstance(net, kinds):
        raise FtnnError(f"expected a {' or '.join(kind.__name__ for kind in kinds)}, got {quoted(net)}")
    weight = next(net.parameters(), None)
    layers = [part for part in net.modules() if isinstance(getattr(part, "in_features", None), int)]
    if weight is None or not layers:
        raise FtnnError(f"{type(net).__name__} has no layers to train")
    if not any(p.requires_grad for p in net.parameters()):
        raise FtnnError("all parameters are frozen, so there is nothing to train")
    if weight.is_meta:
        raise FtnnError("the network is on the meta device, so it has no parameters to train")
    if weight.dtype not in (torch.float16, torch.float32, torch.float64):
        raise DTypeError(
            f"the network is {weight.dtype}; expected float32 or float64: convert it with .float()"
        )
    dtype = str(weight.dtype).removeprefix("torch.")
    inputs: Any = layers[0].in_features
    outputs: Any = layers[-1].out_features
    return make_problem(x, y, inputs=inputs, outputs=outputs, dtype=dtype, **more)


def make_problem(
    x: Any,
    y: Any,
    *,
    inputs: int,
    outputs: int,
    dtype: str,
    loss: Loss | None,
    weights: Any = None,
    test: Any = None,
) -> Problem:
    """Check and convert a user's data. The default loss is softmax for integer `y`, else squared."""
    x = _samples(x, "x", inputs, dtype)
    y = as_array(y, "y")
    if loss is None:
        loss = SOFTMAX if y.dtype.kind in "iub" else "squared"
    loss_formula(loss)
    y = _answers(y, "y", len(x), loss, outputs, dtype)
    if weights is not None:
        weights = as_array(weights, "sample_weight")
        if weights.shape != (len(x),):
            raise ShapeError(f"sample_weight has shape {weights.shape}; expected {(len(x),)}")
        weights = _finite(weights, "sample_weight", dtype)
        if (weights < 0).any():
            raise DataError(f"sample_weight has {weights.min():g}; expected numbers of 0 or more")
    problem = Problem(x, y, loss, outputs, weights)
    if test is None:
        return problem
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise DataError(f"test={quoted(test)} must be a pair (x, y)")
    test_x = _samples(test[0], "the test x", inputs, dtype)
    test_y = _answers(as_array(test[1], "the test y"), "the test y", len(test_x), loss, outputs, dtype)
    return replace(problem, test_x=test_x, test_y=test_y)


def as_array(data: Any, name: str) -> Array:
    """Convert a user's data to an array of numbers."""
    unmasked(data, name)
    try:
        array = _from_tensor(data) if isinstance(data, torch.Tensor) else np.asarray(data)
    except Exception as error:  # rows of different lengths, sparse tensors, a failing __array__, …
        raise DataError(f"{name} cannot be converted to an array of numbers: {error}") from error
    if array.dtype.kind not in "iubf":
        raise DataError(f"{name} must be an array of numbers, not {quoted(data)} ({array.dtype})")
    return array


def _from_tensor(tensor: torch.Tensor) -> Array:
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()  # NumPy lacks the shorter types, but float32 represents all their values
    return tensor.detach().cpu().numpy()


def _samples(data: Any, name: str, inputs: int, dtype: str) -> Array:
    array = as_array(data, name)
    if array.ndim != 2 or array.shape[1] != inputs:
        raise ShapeError(
            f"{name} has shape {array.shape}; expected (samples, {inputs}), one column for each input of the "
            "network"
        )
    if len(array) == 0:
        raise DataError(f"{name} has no samples; at least one is needed")
    return _finite(array, name, dtype)


def _finite(array: Array, name: str, dtype: str) -> Array:
    """The array in the network's dtype; raises `DataError` unless all its numbers are finite."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(converted).all():
        place = tuple(np.argwhere(~np.isfinite(converted))[0].tolist())
        where = ", ".join(f"{axis} {n}" for axis, n in zip(("row", "column"), place, strict=False))
        value = array[place]
        why = f" (too large for {dtype})" if np.isfinite(value) else ""
        raise DataError(
            f"{name} has {value}{why} in {where}; expected finite numbers: fill in or drop such rows"
        )
    return converted


def _answers(y: Array, name: str, samples: int, loss: Loss, outputs: int, dtype: str) -> Array:
    if y.ndim == 0:
        raise ShapeError(f"{name} is a single number; expected one for each sample")
    if len(y) != samples:
        raise ShapeError(f"{name} has {len(y)} rows for {samples} samples")
    if loss == SOFTMAX:
        if y.ndim != 1 or y.dtype.kind not in "iub":
            raise DataError(
                f"{name} is {y.dtype} of shape {y.shape}; expected one integer label for each sample"
            )
        if y.min() < 0 or y.max() >= outputs:
            raise DataError(
                f"{name} has labels from {y.min()} to {y.max()}; the network has {outputs} outputs, "
                f"so expected 0 to {outputs - 1}"
            )
        return y.astype(np.int64)
    table = y[:, None] if y.ndim == 1 else y
    if table.ndim != 2 or table.shape[1] != outputs:
        hint = "; class labels must be integers" if y.ndim == 1 else ""
        message = f"{name} has shape {y.shape}; expected {(samples, outputs)} for {outputs} outputs{hint}"
        raise ShapeError(message)
    table = _finite(table, name, dtype)
    if loss == LOGISTIC and not ((table >= 0) & (table <= 1)).all():
        raise DataError(
            f"{name} has targets from {table.min():g} to {table.max():g}; expected 0 to 1 for the loss "
            f"{loss!r}"
        )
    return table
