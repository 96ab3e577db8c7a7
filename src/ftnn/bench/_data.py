"""What the networks are trained on, and in which order: the same for every system."""

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


@dataclass(frozen=True, eq=False)  # compared by identity, so that it can be a key
class Data:
    """Labelled samples as both worlds want them; made ready before anything is timed."""

    x: Array
    """(samples, in), float32."""
    labels: Array
    """(samples,), int64."""
    order: Array
    """Fresh random orders of all samples, one behind the other, int64."""

    @property
    def density(self) -> float:
        return round(np.count_nonzero(self.x) / self.x.size, 3)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """x, labels and order for torch, without a copy."""
        return torch.from_numpy(self.x), torch.from_numpy(self.labels), torch.from_numpy(self.order)

    def start(self, first: int, steps: int, batch: int) -> int:
        """Where in the order step `first` begins, if `steps` follow; at the front again when it ends."""
        last = len(self.order) - steps * batch
        if last < 0:
            raise ValueError(
                f"{steps} mini-batches of {batch} are more than an order of {len(self.order)} has"
            )
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
    """As the compiled epoch takes them."""
    return Samples.of(data.x, "float32")


def sparse(density: float, inputs: int = 784, count: int = 4096) -> Data:
    """Made-up images in which every pixel is as likely as any other not to be zero."""
    random = np.random.default_rng(0)
    x = random.uniform(0.01, 1, (count, inputs)) * (random.random((count, inputs)) < density)
    return _data(x, random.integers(CLASSES, size=count), 60_000)
