"""What `ftnn inspect` does: from a model's file to counts, plots, formulas and a pruned model."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from ftnn import _atomic
from ftnn.data import Preparation, idx_directory, mnist, read_table
from ftnn.errors import DataError, FtnnError, ModelFileError
from ftnn.inspect._bounds import Array
from ftnn.inspect._census import Census, connections
from ftnn.inspect._layers import layers_of
from ftnn.inspect._plot import plot
from ftnn.inspect._prune import prune
from ftnn.inspect._symbols import latex, sympy
from ftnn.nn import load, notes_of, save

Form = Literal["sympy", "latex"]
FORMATS = ("pdf", "png", "svg")
"""Of plots."""


@dataclass(frozen=True)
class Inspected:
    """What was found in a model."""

    model: Path
    kind: str
    """The type of the network."""
    parameters: int
    samples: int | None
    """How many the counts were made on; None without data."""
    census: Census
    inputs: tuple[str, ...] | None
    """What x0, x1, … are, where the model's file says so."""
    outputs: tuple[str, ...] | None
    """Each output written out, where that was asked for."""
    written: tuple[Path, ...]
    """Files that were made."""

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "model": str(self.model),
            "type": self.kind,
            "parameters": self.parameters,
            "samples": self.samples,
            "layers": [asdict(counts) for counts in self.census],
            "inputs": self.inputs and list(self.inputs),
            "outputs": self.outputs and list(self.outputs),
            "written": list(map(str, self.written)),
        }


def inspect(
    model: Path,
    data: str | None = None,
    *,
    form: Form | None = None,
    digits: int | None = 3,
    plot_file: Path | None = None,
    prune_file: Path | None = None,
) -> Inspected:
    """Look into the model in a file, or in a folder that `ftnn train --out` made.

    **Arguments:**

    - `data`: `mnist`, a folder of IDX files (their test images), or a table: what connections sleep on.
    - `form`: how to write the outputs out, if at all; `digits`: rounds parameters there.
    - `plot_file`: where to draw each layer's most influential connections.
    - `prune_file`: where to save the model without its dead connections.
    """
    path = model / "model.safetensors" if model.is_dir() else model
    net, notes = load(path), notes_of(path)
    layers_of(net)  # refuses what has memory before anything is read or written
    if plot_file is not None and plot_file.suffix.lower().lstrip(".") not in FORMATS:
        raise FtnnError(f"--plot {plot_file}: allowed are names that end in .{', .'.join(FORMATS)}")
    known = _preparation(notes, path)
    x = None if data is None else _samples(net, known, data)
    census = connections(net, x)
    outputs = None if form is None else _written(net, form, digits)
    written: list[Path] = []
    if plot_file is not None:
        _plot(net, plot_file, x)
        written.append(plot_file)
    if prune_file is not None:
        save(prune(net), prune_file, notes=notes)
        written.append(prune_file)
    return Inspected(
        path,
        type(net).__name__,
        sum(p.numel() for p in net.parameters()),
        None if x is None else len(x),
        census,
        None if known is None else _named(known),
        outputs,
        tuple(written),
    )


def _preparation(notes: dict[str, Any], path: Path) -> Preparation | None:
    """None for a model that was saved from Python: its inputs are taken as they are."""
    return Preparation.of(notes, path) if "preparation" in notes else None


def _samples(net: nn.Module, known: Preparation | None, data: str) -> Array:
    if data == "mnist" or Path(data).is_dir():
        if known is not None and known.features is not None:
            raise DataError(f"this model takes a table with {', '.join(known.features)}, not images: {data}")
        x = (mnist() if data == "mnist" else idx_directory(data)).test_images
    elif known is not None and known.features is None:
        raise DataError(f"this model takes images: name a folder of IDX files or mnist, not {data}")
    else:
        x = read_table(data, None, None if known is None else known.features).x
        x = x if known is None else known.inputs(x)
    wanted = getattr(net, "in_features", x.shape[1])
    if x.shape[1] != wanted:
        raise DataError(f"this model takes {wanted} features, but {data} has {x.shape[1]}")
    return x


def _named(known: Preparation) -> tuple[str, ...] | None:
    """What each input is made of."""
    if known.features is None or known.mean is None or known.scale is None:
        return known.features
    return tuple(
        f"({name} - {mean:.6g})/{scale:.6g}" if mean >= 0 else f"({name} + {-mean:.6g})/{scale:.6g}"
        for name, mean, scale in zip(known.features, known.mean, known.scale, strict=True)
    )


def _written(net: nn.Module, form: Form, digits: int | None) -> tuple[str, ...]:
    return tuple(latex(net, digits)) if form == "latex" else tuple(map(str, sympy(net, digits)))


def _plot(net: nn.Module, file: Path, x: Array | None) -> None:
    """A row for each layer, over the range of the data for the first one."""
    from matplotlib.figure import Figure

    found = layers_of(net)
    figure = Figure(figsize=(9.5, 3.8 * len(found)), layout="constrained")
    for n, (name, layer) in enumerate(found):
        ax = figure.add_subplot(len(found), 1, n + 1)
        low, high = (-1.0, 1.0) if x is None or n else (float(np.min(x)), float(np.max(x)))
        plot(layer, x=(low, high) if low < high else (-1.0, 1.0), ax=ax)
        ax.set_title(f"{name or 'layer'}   {ax.get_title()}", fontsize=11)
    content = io.BytesIO()
    figure.savefig(content, format=file.suffix.lower().lstrip("."), dpi=120)
    _atomic.write_or_explain(file, content.getvalue(), ModelFileError)
