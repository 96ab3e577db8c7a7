"""The systems to compare, if this machine has them."""

from __future__ import annotations

import importlib
import os
import shutil
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from ftnn.bench._torch import Broadcast, layer

FTNN = "ftnn"
MLP = "mlp"
ONE_THREAD, WARM = "one thread", "warm"
LINEAR = "linear"
EAGER = "eager"
COMPILE = "compile"
PYKAN = "pykan"

TITLES = {
    FTNN: "ftnn",
    MLP: "torch MLP",
    ONE_THREAD: "ftnn, one thread",
    WARM: "with cached kernels",
    LINEAR: "nn.Linear",
    EAGER: "torch eager",
    COMPILE: "torch.compile",
    PYKAN: "pykan",
}


@dataclass(frozen=True, slots=True)
class Systems:
    """Which optional systems to include."""

    compile: bool = True
    pykan: bool = True


ALL = Systems()


def present(requested: Systems) -> tuple[Systems, list[str]]:
    """The requested systems that can run here, and a note about each that cannot."""
    notes: list[str] = []
    has_pykan = find_spec("kan") is not None
    if requested.compile and not has_compiler():
        notes.append("torch.compile is left out: it needs a C++ compiler.")
    if requested.pykan and not has_pykan:
        notes.append("pykan is left out: it is not installed.")
    return Systems(requested.compile and has_compiler(), requested.pykan and has_pykan), notes


def has_compiler() -> bool:
    """Whether torch.compile can find a compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "g++", "clang++"))


def compiled(module: nn.Module) -> Any:
    """A module through torch.compile, for a fixed batch size. It compiles during the warm-up."""
    # All formulas share the code of one class, and dynamo gives up after compiling code eight times.
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    return torch.compile(module, fullgraph=True, dynamic=False)


def mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The yardstick: an ordinary network."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, width), nn.Sigmoid(), nn.Linear(width, outputs))


def ftnn_network(function: str, inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The same with ftnn's layer first."""
    return _replace_first(layer(function, inputs, width), mlp(inputs, width, outputs))


def broadcast_network(function: str, inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The same with the formula in plain torch first."""
    return _replace_first(Broadcast(layer(function, inputs, width)), mlp(inputs, width, outputs))


def _replace_first(first: nn.Module, network: nn.Sequential) -> nn.Sequential:
    _, *rest = network
    return nn.Sequential(first, *rest)


@cache
def kan(inputs: int, width: int, outputs: int) -> nn.Module:
    """pykan's network of this size with its defaults, in speed mode; shared by all functions."""
    with torch.random.fork_rng():  # it sets all seeds
        network = importlib.import_module("kan").KAN(width=[inputs, width, outputs], auto_save=False)
    return network.speed() or network
