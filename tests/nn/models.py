"""Modules to save, and tools to inspect and damage model files."""

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

import ftnn
from ftnn import Mixed
from ftnn.errors import ModelFileError
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer
from ftnn.nn._activations import Activate
from ftnn.nn._safetensors import digest as _digest

WAVE = ftnn.Function("a*sin(b*x) + c*x*v", init={"b": (0.1, 2 / 3)}, constants={"v": (-1, 0.1)})
MAP = np.array([[0, 1, 1], [1, 0, 1]])

MODULES: dict[str, Callable[[], nn.Module]] = {
    "a catalogue name": lambda: Transfer(3, 2, "F08"),
    "a formula without bias": lambda: Transfer(3, 2, "p*x + q", bias=False, backend="reference"),
    "a function with ranges": lambda: Transfer(3, 2, WAVE),
    "a grounded function": lambda: Transfer(3, 2, ftnn.catalogue["F11"].grounded()),
    "one connection": lambda: Transfer(1, 1, "F12"),
    "mixed at random": lambda: Transfer(3, 2, Mixed(["F12", "F08", WAVE])),
    "mixed by rows": lambda: Transfer(3, 2, Mixed(["F12", "F03"], "rows")),
    "mixed by a map": lambda: Transfer(3, 2, Mixed(["F12", "F08"], MAP)),
    "one kind mixed": lambda: Transfer(3, 2, Mixed(["F08"])),
    "memory": lambda: Memory(3, 2, through_time=True),
    "mixed memory": lambda: Memory(3, 2, Mixed(["memory", "p*x + C*u**2"]), bias=False),
    "a memory network": lambda: MemoryNetwork(3, 4, 2, "tanh(p*x + C)", "tanh", through_time=True),
    "a network": lambda: Network(3, [4, 5], 2, ["F08", Mixed(["F12", WAVE])], "relu"),
    "a network without hidden layers": lambda: Network(3, [], 2),
    "a sequence": lambda: nn.Sequential(
        nn.Flatten(-1), Transfer(3, 4, "F12"), nn.Sigmoid(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Tanh()
    ),
    "a sequence of sequences with names": lambda: nn.Sequential(
        OrderedDict(
            first=nn.Sequential(Transfer(3, 3, "F07")), then=nn.Identity(), last=Network(3, [2], 1, "F01")
        )
    ),
    "a scale": lambda: Transfer(3, 2, "F10", scale=True),
    "a partial layer with a scale": lambda: Partial(3, 2, "F10", [(0, 1), (1, 2)], bias=False, scale=True),
    "a network with scales": lambda: scaled_network(),
    "normalisations": lambda: nn.Sequential(
        *(nn.Flatten(0, -2), Transfer(3, 4, "F12", bias=False), nn.BatchNorm1d(4), nn.Tanh()),
        *(nn.BatchNorm1d(4, 0.1, None, affine=False), nn.BatchNorm1d(4, track_running_stats=False)),
        *(nn.LayerNorm(4, 0.01), nn.LayerNorm([4], bias=False), nn.LayerNorm(4, elementwise_affine=False)),
    ),
    "activations and dropout": lambda: nn.Sequential(
        *(nn.Linear(3, 3), nn.Dropout(0.0), nn.GELU(), nn.GELU("tanh"), nn.SiLU()),
        *(nn.LeakyReLU(0.3), nn.ELU(2), nn.Softsign(), Activate("x*logistic(x)"), Activate("tanh")),
    ),
}


def scaled_network() -> Network:
    net = Network(3, [4, 5, 2], 2, ["F10", Mixed(["F12", WAVE]), "F03"], "relu")
    net.hidden[0] = Transfer(3, 4, "F10", backend="reference", scale=True)
    net.hidden[2] = Partial(5, 2, "F03", [(0, 3), (1, 4)], scale=True)
    return net


each_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())


def run(module: nn.Module) -> Any:
    first = next(module.parameters())
    x = torch.linspace(-1, 1, 12, dtype=first.dtype).reshape(2, 2, 3)[
        ..., : getattr(module, "in_features", 3)
    ]
    return module(x)


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    return metadata_of(path), safetensors.torch.load(path.read_bytes())


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(str(path), framework="pt") as file:
        return dict(file.metadata())


def rewrite(
    path: Path, description: Any = None, tensors: dict[str, Tensor] | None = None, **metadata: str
) -> None:
    """Rewrite the file with other content and a matching digest, like an attacker who knows the format."""
    old, old_tensors = parts(path)
    tensors = old_tensors if tensors is None else tensors
    text = old["model"] if description is None else description
    text = text if isinstance(text, str) else json.dumps(text)
    new = {**old, "model": text, "digest": _digest(text + old.get("notes", ""), tensors), **metadata}
    path.write_bytes(safetensors.torch.save(tensors, new))


def refused(path: Path, *words: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        ftnn.load(path)
    message = str(caught.value)
    for word in (str(path), *words):
        assert word in message, message
    return message


def broken_by(error: OSError | KeyboardInterrupt) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
