"""The training data and their order, the same for every system."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftnn.data import mnist
from ftnn.training.compiled.buffers import Samples

Array = np.ndarray[Any, np.dtype[Any]]

CLASSES = 10


@dataclass(frozen=True, eq=False)  # hashed by identity
class Data:
    """Labelled samples, prepared before anything is timed."""

    x: Array
    """(samples, in), float32."""
    labels: Array
    """(samples,), int64."""
    order: Array
    """Random permutations of the samples, concatenated, int64."""

    @property
    def density(self) -> float:
        return round(np.count_nonzero(self.x) / self.x.size, 3)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """x, labels and order as tensors, without copying."""
        return torch.from_numpy(self.x), torch.from_numpy(self.labels), torch.from_numpy(self.order)

    def start(self, first: int, steps: int, batch: int) -> int:
        """The place in the order where step `first` begins, wrapped so that `steps` mini-batches fit."""
        last = len(self.order) - steps * batch
        if last < 0:
            raise ValueError(f"{steps} mini-batches of {batch} do not fit in an order of {len(self.order)}")
        return first * batch % (last + 1)


def _data(x: Array, labels: Array, least: int) -> Data:
    random = np.random.default_rng(0)
    orders = [random.permutation(len(x)) for _ in range(max(1, -(-least // len(x))))]
    return Data(np.ascontiguousarray(x, np.float32), labels.astype(np.int64), np.concatenate(orders))


@cache
def digits() -> Data:
    """MNIST's 60,000 training images."""
    images = mnist()
    return _data(images.train_images, images.train_labels, 240_000)


@cache
def samples(data: Data) -> Samples:
    """The data for the compiled epoch."""
    return Samples.of(data.x, "float32")


def sparse(density: float, inputs: int = 784, count: int = 4096) -> Data:
    """Synthetic images in which each pixel is non-zero with probability `density`."""
    random = np.random.default_rng(0)
    x = random.uniform(0.01, 1, (count, inputs)) * (random.random((count, inputs)) < density)
    return _data(x, random.integers(CLASSES, size=count), 60_000)
