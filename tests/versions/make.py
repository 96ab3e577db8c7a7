"""Writes files with the current version of ftnn: `python -m tests.versions.make DIR`.

Run once at each release. The files are committed and never regenerated; `test_versions.py` checks that every
later version of ftnn reads them with the same results.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

import ftnn
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer

RESULTS = Path(__file__).parents[2] / "results"
INPUTS = 3
WAVE = ftnn.Function("a*sin(b*x) + c*x*v", init={"b": (0.1, 2 / 3)}, constants={"v": (-1, 0.1)})
MIXED = ftnn.Mixed(["F12", "F08", WAVE])

Watch = Callable[[object], object]
MODULES: dict[str, Callable[[], nn.Module]] = {
    "transfer": lambda: Transfer(INPUTS, 4, "F12"),
    "transfer-reference": lambda: Transfer(INPUTS, 4, WAVE, bias=False, backend="reference"),
    "transfer-mixed": lambda: Transfer(INPUTS, 4, MIXED),
    "transfer-mixed-rows": lambda: Transfer(INPUTS, 4, ftnn.Mixed(["F12", "F03"], "rows")),
    "transfer-grounded": lambda: Transfer(INPUTS, 4, ftnn.catalogue["F11"].grounded()),
    "partial": lambda: Partial(INPUTS, 4, "F12", [(0, 1), (2, 0), (2, 2), (3, 1)]),
    "memory": lambda: Memory(INPUTS, 4, "memory", through_time=True),
    "network": lambda: Network(INPUTS, [4, 5], 2, ["F08", MIXED], "relu"),
    "memory-network": lambda: MemoryNetwork(INPUTS, 4, 2, "tanh(p*x + C)", "tanh"),
    "sequential": lambda: nn.Sequential(
        OrderedDict(
            flat=nn.Flatten(-1),
            functions=Transfer(INPUTS, 4, "F07"),
            squashed=nn.Sigmoid(),
            weights=nn.Linear(4, 4, bias=False),
            rest=nn.Sequential(nn.ReLU(), nn.Linear(4, 2), nn.Tanh(), nn.Identity()),
        )
    ),
}


def run(module: nn.Module) -> Tensor:
    """The output of a module for a few fixed rows."""
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 2, INPUTS)
    out = module(x)
    return out[0] if isinstance(out, tuple) else out


def small_network() -> Network:
    net = Network(INPUTS, [4, 3], 2, "F12", "tanh").double()
    ftnn.training.initialise(net, 3)
    return net


def train(net: Network, path: Path | None, stop_after: int | None = None, watch: Watch = id) -> Network:
    """Train for a few epochs with a checkpoint at `path`; interrupt after `stop_after` epochs."""
    random = torch.Generator().manual_seed(5)
    x = torch.randn(48, INPUTS, generator=random, dtype=torch.float64)
    y = (x.sum(1) > 0).long()
    epochs = 0

    def interrupt(epoch: object, _: Network) -> None:
        nonlocal epochs
        epochs += 1
        watch(epoch)
        if epochs == stop_after:
            raise KeyboardInterrupt

    # The torch engine: compiled checkpoints belong to one vector width.
    with contextlib.suppress(KeyboardInterrupt):
        ftnn.training.fit(
            net, x.numpy(), y.numpy(), gamma=-3, epochs=(3, 3), engine="torch", checkpoint=path,
            callbacks=[interrupt],
        )  # fmt: skip
    return net


def ftnn_command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "ftnn", *words], check=True, stdout=sys.stderr)


REPRODUCED = (
    [
        *("mnist", "--functions", "F12", "--functions", "p*x + q*tanh(r*x) where q in [-1, 1]"),
        *("--layers", "1,2", "--activations", "tanh", "--gammas", "-2", "--data", "mnist:200"),
        *("--width", "4", "--epochs", "2", "--fine-tuning-epochs", "2", "--jobs", "1"),
    ],
    ["pi", "--hidden", "4", "--pairs", "10", "--epochs", "3", "--jobs", "1"],
    ["conic", "--problems", "learn-ellipse"],
)


def main(directory: Path) -> None:
    directory.mkdir(parents=True)
    outputs: dict[str, Tensor] = {}
    for number, (name, make) in enumerate(MODULES.items()):
        torch.manual_seed(number)
        module = make().double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += torch.randn_like(parameter) / 4
        ftnn.save(module, directory / f"{name}.safetensors")
        outputs[name] = run(module).detach().clone()
    train(small_network(), directory / "checkpoint.safetensors", stop_after=4)
    outputs |= {f"trained.{name}": t for name, t in train(small_network(), None).state_dict().items()}
    store = ("--store", str(directory / "store.sqlite"))
    for words in REPRODUCED:
        ftnn_command("reproduce", *words, *store)
    for what in ("mnist", "custom"):  # cells of the paper's size take minutes, so use existing ones
        rows = (RESULTS / f"{what}.csv").read_text().splitlines(keepends=True)
        path = directory / f"{what}.csv"
        path.write_text("".join(rows[:6]))
        ftnn_command("store", "import", str(path), *store)
    for what in ("mnist", "custom", "other"):
        ftnn_command("store", "export", str(directory / f"{what}.csv"), "--what", what, *store)
    ftnn_command("store", "export", str(directory / "all.parquet"), *store)
    safetensors.torch.save_file(outputs, directory / "expected.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
