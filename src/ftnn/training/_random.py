"""Random numbers, keyed by purpose: any part of a run can be repeated alone, with the same result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from ftnn.errors import FtnnError
from ftnn.nn import MemoryNetwork, Network
from ftnn.nn._network import reset_linear
from ftnn.training._checks import quoted, whole


class Purpose(IntEnum):
    """What a random stream is used for. Never change these numbers: results depend on them."""

    hidden = 1
    output = 2
    lwt = 3
    ft = 4
    joint = 5
    direct = 6
    signs = 7
    starts = 8
    modules = 9


def stream(seed: int, purpose: Purpose, layer: int = 0, epoch: int = 0) -> np.random.Generator:
    """The random numbers for one purpose, layer and epoch of a run."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose, layer, epoch])))


def order(seed: int, purpose: Purpose, layer: int, epoch: int, samples: int) -> np.ndarray[Any, Any]:
    """The order of an epoch's samples."""
    return stream(seed, purpose, layer, epoch).permutation(samples)


def torch_generator(seed: int, purpose: Purpose, layer: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(stream(seed, purpose, layer).integers(2**63)))


@contextmanager
def modules_draw_from(seed: int, device: torch.device) -> Generator[None]:
    """Seed the random numbers that modules draw themselves, such as those of dropout.

    They come from torch's global generators, which are left as they were.
    """
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if is_cuda else []):
        # `torch.manual_seed` would also seed devices that are not restored.
        torch.default_generator.manual_seed(seed)
        if is_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def initialise(net: Network | MemoryNetwork, seed: int) -> None:
    """Draw a network's parameters from a seed. Each layer's are independent of the number of layers."""
    if not isinstance(net, Network | MemoryNetwork):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"expected a Network or MemoryNetwork of ftnn.nn, got {quoted(net)}")
    seed = whole("seed", seed, least=0)
    layers = [net.memory] if isinstance(net, MemoryNetwork) else net.layers
    for number, layer in enumerate(layers):
        layer.reset_parameters(torch_generator(seed, Purpose.hidden, number))
    generator = torch_generator(seed, Purpose.output, max(len(layers) - 1, 0))
    if isinstance(net, Network):
        net.reset_output(generator)
    else:
        reset_linear(net.output, generator)
