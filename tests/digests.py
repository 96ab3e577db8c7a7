"""Whether results keep their bits: `make digests`, or `python -m tests.digests [--quick] [--write]`.

Run it after a change that should not affect results: it compares with a baseline that `--write` made at the
commit before. The last bits depend on the kind of CPU and the versions of a few libraries, so each such kind
has its own baseline; without one, it says so and ends.

The baseline was remade for version 0.2 because its compiled training engine is new: networks trained by it
differ from those of 0.1 in their last bits. Layers and the torch engine kept all their digests.

`--quick` takes a minute: what layers compute and what short trainings end with, for all functions.
Without it, whole cells of the paper's tables are trained too, which takes some minutes more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ftnn
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer

BASELINE = Path(__file__).parent / "digests.json"
CUSTOM = "p*x + q*tanh(r*x) + 0.1*cos(s*x)"
FUNCTIONS = (*(name for name in ftnn.catalogue if name != "memory"), CUSTOM, "p*exp(q*x)/(1 + x**2)")


def machine() -> str:
    """What the last bits depend on, besides ftnn."""
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].splitlines()[0].split()
    vectors = next((kind for kind in ("avx512f", "avx2") if kind in flags), "other")
    libraries = ("torch", "numpy", "llvmlite")
    return " ".join([vectors, *(f"{name}-{version(name)}" for name in libraries)])


def digest(*tensors: Tensor | None) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            array = tensor.detach().contiguous()
            total.update(f"{array.dtype} {tuple(array.shape)} ".encode())
            total.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


# --- what layers compute ---


def computed(layer: torch.nn.Module, x: Tensor) -> str:
    """The digest of a layer's outputs and of all its gradients."""
    x = x.clone().requires_grad_()
    out = layer(x)
    outs = out if isinstance(out, tuple) else (out,)
    sum((o * torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o)).sum() for o in outs).backward()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return digest(*outs, x.grad, *(p.grad for p in layer.parameters()))


def layers(function: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """What layers of one function compute: dense and sparse inputs, odd sizes, both dtypes."""
    for dtype in (torch.float32, torch.float64):
        for share, backend in ((0.0, "auto"), (0.8, "auto"), (0.0, "cpu"), (0.8, "cpu"), (0.0, "reference")):

            def whole(dtype: torch.dtype = dtype, share: float = share, backend: Any = backend) -> str:
                torch.manual_seed(1)
                layer = Transfer(37, 29, function, dtype=dtype, backend=backend)
                return computed(layer, _rows(23, 37, share, dtype))

            yield f"transfer {function} {str(dtype)[6:]} {backend} {share:g} zeros", whole

        def partial(dtype: torch.dtype = dtype) -> str:
            torch.manual_seed(2)
            pairs = torch.rand(11, 17).lt(0.4).nonzero()
            return computed(Partial(17, 11, function, pairs, dtype=dtype), _rows(13, 17, 0.3, dtype))

        yield f"partial {function} {str(dtype)[6:]}", partial


def _rows(batch: int, features: int, zeros: float, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(3)
    x = torch.randn(batch, features, dtype=torch.float64)
    return (x * (torch.rand(batch, features) >= zeros)).to(dtype)


def memory() -> str:
    torch.manual_seed(4)
    return computed(Memory(7, 5, "memory", through_time=True), _rows(12, 7, 0.5, torch.float32).view(4, 3, 7))


# --- what trainings end with ---


def short_training(function: str, activation: Any, dtype: torch.dtype, engine: Any = "compiled") -> str:
    """Two layers, layer-wise and fine-tuned, for an epoch each."""
    data, samples = ftnn.data.mnist(), 320
    net = Network(784, [19, 10], 10, function, activation).to(dtype)
    ftnn.training.initialise(net, 0)
    images, labels = data.train_images[:samples], data.train_labels[:samples]
    history = ftnn.training.fit(net, images, labels, gamma=-3, epochs=(1, 1), engine=engine)
    accuracies = [epoch.train_accuracy or 0 for epoch in history.epochs if not epoch.undone]
    at_chance = "finite" in (history.failed or "") or accuracies[-1] <= 20  # as in the paper's grids
    return ftnn.training.digest(net)[:16] + (" failed" if at_chance else "")


def regression() -> str:
    torch.manual_seed(6)
    x = torch.randn(100, 5)
    net = Network(5, [9], 2, "F12", "tanh")
    ftnn.training.initialise(net, 1)
    ftnn.training.fit(net, x.numpy(), torch.stack([x.sum(1), x[:, 0] ** 2], 1).numpy(), epochs=(2, 2))
    return ftnn.training.digest(net)[:16]


def sequence(epochs: int, hidden: int = 128, pairs: int = 200) -> str:
    """Digits of π in a memory network."""
    digits = torch.tensor(ftnn.data.pi_digits(pairs + 1).astype("int64"))
    net = MemoryNetwork(10, hidden, 10)
    ftnn.training.initialise(net, 0)
    one_hot = torch.nn.functional.one_hot(digits[:-1], 10).float()
    ftnn.training.fit_sequence(net, one_hot.numpy(), digits[1:].numpy(), epochs=epochs, keep_state=False)
    return ftnn.training.digest(net)[:16]


def cell(*words: str) -> str:
    """A cell of the paper's tables, through the command line."""
    command = [sys.executable, "-m", "ftnn", "train", *words, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["digest"]


def quick() -> Iterator[tuple[str, Callable[[], str]]]:
    for function in FUNCTIONS:
        yield from layers(function)
        for activation in ("logistic", "relu", "tanh"):
            name = f"training {function} {activation}"
            yield name, lambda f=function, a=activation: short_training(f, a, torch.float32)
    yield "memory", memory
    yield "training F12 float64", lambda: short_training("F12", "tanh", torch.float64)
    yield "training F12 by torch", lambda: short_training("F12", "tanh", torch.float32, "torch")
    yield "regression", regression
    yield "sequence of 3 epochs", lambda: sequence(3, 16, 40)


def long() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "F07-logistic γ=0", lambda: cell(*_cell("F07", "logistic", "1", "0"))
    yield "F12-tanh γ=-4", lambda: cell(*_cell("F12", "tanh", "1", "-4"))
    yield "F09-ReLU γ=-3, 5 layers", lambda: cell(*_cell("F09", "relu", "5", "-3"))
    yield f"{CUSTOM}-tanh γ=-2", lambda: cell(*_cell(CUSTOM, "tanh", "1", "-2"))
    yield "sequence of 200 epochs", lambda: sequence(200)


def _cell(function: str, activation: str, layers: str, gamma: str) -> list[str]:
    return ["--function", function, "--activation", activation, "--layers", layers, "--gamma", gamma]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--quick", action="store_true", help="leave out whole cells")
    options.add_argument("--write", action="store_true", help="make the baseline of this kind of machine")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    baselines: dict[str, dict[str, str]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    kind = machine()
    if kind not in baselines and not chosen.write:
        print(f"there is no baseline for {kind}; check out the commit to compare with, and run with --write")
        return 2
    baseline, different = baselines.setdefault(kind, {}), 0
    for name, run in (*quick(), *(() if chosen.quick else long())):
        got = run()
        if chosen.write:
            baseline[name] = got
        elif got != baseline.get(name):
            different += 1
            print(f"{name}: {got}, and {baseline.get(name)} before", flush=True)
    if chosen.write:
        BASELINE.write_text(json.dumps(baselines, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        print(f"{len(baseline)} digests written")
        return 0
    print(f"{different} of the digests differ" if different else "all digests are as before")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
