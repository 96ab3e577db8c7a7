"""The systems to compare, if this machine has them."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable
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
PYKAN, FASTKAN, EFFICIENT_KAN = "pykan", "fast-kan", "efficient-kan"
STEPS = "steps"
RNN = "rnn"
FLOAT32 = "float32"

TITLES = {
    FTNN: "ftnn",
    MLP: "torch MLP",
    ONE_THREAD: "ftnn, one thread",
    WARM: "with cached kernels",
    LINEAR: "nn.Linear",
    EAGER: "torch eager",
    COMPILE: "torch.compile",
    PYKAN: "pykan",
    FASTKAN: "fast-kan",
    EFFICIENT_KAN: "efficient-kan",
    STEPS: "step by step",
    RNN: "nn.RNN",
    FLOAT32: "float32",
}


KANS: dict[str, tuple[str, Callable[[Any, list[int]], nn.Module]]] = {
    PYKAN: ("kan", lambda library, widths: _in_speed_mode(library.KAN(width=widths, auto_save=False))),
    FASTKAN: ("fastkan", lambda library, widths: library.FastKAN(widths)),
    EFFICIENT_KAN: ("efficient_kan", lambda library, widths: library.KAN(widths)),
}
"""Each library's module, and its network of given widths with default settings."""


@dataclass(frozen=True, slots=True)
class Systems:
    """Which optional systems to include."""

    compile: bool = True
    kans: tuple[str, ...] = tuple(KANS)
    """Libraries of spline networks, by name."""


ALL = Systems()


def present(requested: Systems) -> tuple[Systems, list[str]]:
    """The requested systems that can run here, and a note about each that cannot."""
    notes: list[str] = []
    if requested.compile and not has_compiler():
        notes.append("torch.compile is left out: it needs a C++ compiler.")
    installed = tuple(name for name in requested.kans if find_spec(KANS[name][0]) is not None)
    notes += [f"{name} is left out: it is not installed." for name in requested.kans if name not in installed]
    return Systems(requested.compile and has_compiler(), installed), notes


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


def kans(systems: Systems, *widths: int) -> dict[str, nn.Module]:
    """A network of each library."""
    return {name: _kan(name, widths) for name in systems.kans}


@cache
def _kan(name: str, widths: tuple[int, ...]) -> nn.Module:
    """Shared by all functions."""
    module, network = KANS[name]
    with torch.random.fork_rng():  # pykan sets all seeds
        torch.manual_seed(0)
        return network(importlib.import_module(module), list(widths))


def _in_speed_mode(network: Any) -> Any:
    return network.speed() or network
