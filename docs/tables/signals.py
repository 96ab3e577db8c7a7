"""Draw how signals and errors change from layer to layer, before training.

Usage: python docs/tables/signals.py. It writes docs/figures/signals.svg.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot
from torch import nn

import ftnn
from ftnn.training._normalised import training_form

LAYERS, WIDTH, SAMPLES = 10, 128, 1000
NETWORKS = [("F12", "tanh"), ("F15", "relu"), ("F11", "relu"), ("F03", "relu")]
OUT = Path(__file__).parent.parent / "figures" / "signals.svg"


def sizes(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[list[float], list[float]]:
    """The standard deviation over samples of each hidden layer's inputs, and the size of their gradients."""
    inputs: list[torch.Tensor] = []

    def keep(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        inputs.append(args[0].detach().requires_grad_() if not inputs else args[0])
        inputs[-1].retain_grad()
        return (inputs[-1],)

    layers = [part for part in module.modules() if isinstance(part, ftnn.nn.Transfer)]
    for layer in layers:
        layer.register_forward_pre_hook(keep)
    nn.functional.cross_entropy(module(x), y).backward()
    signals = [float(value.detach().std(0).square().mean().sqrt()) for value in inputs[1:]]
    errors = [float(value.grad.square().mean().sqrt()) for value in inputs[1:] if value.grad is not None]
    return signals, errors


def main() -> None:
    """Measure and draw."""
    data = ftnn.data.mnist()
    images, labels = data.train_images[:SAMPLES], torch.from_numpy(data.train_labels[:SAMPLES])
    x = torch.from_numpy(images)
    mpl.rcParams.update({"svg.hashsalt": "ftnn", "font.size": 9, "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(2, len(NETWORKS), figsize=(10, 4.6), sharex=True, sharey="row")
    for column, (function, activation) in enumerate(NETWORKS):
        net = ftnn.nn.Network(784, [WIDTH] * LAYERS, 10, function, activation)
        ftnn.training.initialise(net, seed=0)
        form = training_form(net, images, seed=0)
        assert form is not None
        before, after = sizes(net, x, labels), sizes(form.module, x, labels)
        for row, name in enumerate(("signal", "error")):
            panel = axes[row][column]
            numbers = range(2, LAYERS + 1)
            panel.semilogy(numbers, before[row], "o--", label="the paper's ranges", color="#b45309", ms=3)
            panel.semilogy(numbers, after[row], "o-", label="direct training", color="#1d4ed8", ms=3)
            panel.set_xticks([2, 4, 6, 8, 10])
            panel.set_ylim(1e-8, 1e3)
            if column == 0:
                panel.set_ylabel(name)
        axes[0][column].set_title(f"{function}-{'ReLU' if activation == 'relu' else activation}")
        axes[1][column].set_xlabel("hidden layer")
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main()
