"""The systems that are compared, as far as this machine has them."""

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
LINEAR = "linear"
EAGER = "eager"
COMPILE = "compile"
PYKAN = "pykan"

TITLES = {
    FTNN: "ftnn",
    MLP: "torch MLP",
    LINEAR: "nn.Linear",
    EAGER: "torch eager",
    COMPILE: "torch.compile",
    PYKAN: "pykan",
}


@dataclass(frozen=True, slots=True)
class Systems:
    """Which of the optional systems take part."""

    compile: bool = True
    pykan: bool = True


ALL = Systems()


def present(asked: Systems) -> tuple[Systems, list[str]]:
    """Those that can run here, and a sentence about each that cannot."""
    notes: list[str] = []
    has_pykan = find_spec("kan") is not None
    if asked.compile and not has_compiler():
        notes.append("torch.compile is left out: it needs a C++ compiler, and there is none on the path.")
    if asked.pykan and not has_pykan:
        notes.append("pykan is left out: it is not installed.")
    return Systems(asked.compile and has_compiler(), asked.pykan and has_pykan), notes


def has_compiler() -> bool:
    """Whether torch.compile finds what it compiles with."""
    return any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "g++", "clang++"))


def compiled(module: nn.Module) -> Any:
    """A module through torch.compile, for one size of mini-batch. What it compiles comes in the warm-up."""
    # All formulas share the code of one module, and dynamo gives up on code that it has compiled eight times.
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    return torch.compile(module, fullgraph=True, dynamic=False)


def mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The yardstick: a plain network of weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, width), nn.Sigmoid(), nn.Linear(width, outputs))


def ftnn_network(function: str, inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The same with ftnn's layer in front."""
    return _with(layer(function, inputs, width), mlp(inputs, width, outputs))


def broadcast_network(function: str, inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The same with the formula in plain torch in front."""
    return _with(Broadcast(layer(function, inputs, width)), mlp(inputs, width, outputs))


def _with(first: nn.Module, network: nn.Sequential) -> nn.Sequential:
    """A network with another first layer."""
    _, *rest = network
    return nn.Sequential(first, *rest)


@cache
def kan(inputs: int, width: int, outputs: int) -> nn.Module:
    """pykan's network of this size, at its defaults and in its speed mode; the same beside every function."""
    with torch.random.fork_rng():  # it sets the seed of everything
        network = importlib.import_module("kan").KAN(width=[inputs, width, outputs], auto_save=False)
    return network.speed() or network
