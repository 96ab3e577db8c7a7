"""The result of `ftnn train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ftnn.cli._screen import NO_R2, amount, r_squared, text

if TYPE_CHECKING:
    from ftnn.data._preparation import Task
    from ftnn.data._training_table import TrainingData
    from ftnn.nn import Network
    from ftnn.training import History


def errors_on_test(net: Network, data: TrainingData) -> tuple[float, float | None] | None:
    """The errors on the test samples, in the units of the target; None if an output is not finite."""
    import numpy as np
    import torch

    from ftnn.data._by_name import errors_of

    with torch.no_grad():
        outputs = net(torch.as_tensor(data.test_x, dtype=net.output.weight.dtype)).numpy()
    if not np.isfinite(outputs).all():
        return None
    unscaled = data.preparation.unscaled
    return errors_of(unscaled(outputs)[:, 0], unscaled(data.test_y[:, None])[:, 0])


def result_table(
    history: History,
    task: Task,
    paper: tuple[float | None, float | None] | None,
    errors: tuple[float, float | None] | None,
    tested_on: str,
    seconds: float,
    out: Path | None,
) -> Table:
    from ftnn.training._advice import as_options

    is_layerwise = any(epoch.stage == "lwt" for epoch in history.epochs)
    columns = ("layer-wise", "fine-tuned") if is_layerwise else ("",)
    table = Table("", *columns, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    before = [""] * (len(columns) - 1)
    if task == "regression":
        rmse, r2 = errors or (None, None)
        table.add_row("test RMSE", *before, "×" if rmse is None else amount(rmse))
        table.add_row("test R²", *before, "×" if r2 is None else r_squared(r2))
        if rmse is not None and r2 is None:
            table.add_row("", *before, NO_R2)
    else:
        accuracies = (history.lwt_accuracy, history.ft_accuracy) if is_layerwise else (history.accuracy,)
        table.add_row("test accuracy", *map(_percent, accuracies))
    if paper is not None:
        table.add_row("the paper's", *map(_percent, paper))
    table.add_row("seconds", *before, f"{seconds:.1f}")
    table.add_row("tested on", text(tested_on))
    if out is not None:
        table.add_row("saved in", text(str(out)))
    if history.converged is not None:
        table.add_row("converged", "yes" if history.converged else _not_converged(history))
    for note in history.notes:
        table.add_row("note", text(note))
    if history.failed:
        table.add_row(text("failed", "bold yellow"), text(history.failed))
        table.add_row(text("try", "bold yellow"), text(as_options(history.advice or "")))
    return table


def _not_converged(history: History) -> str:
    count = len(history.epochs)
    return f"no, in {count} iteration{'s'[: count != 1]}: more may help (--epochs {4 * count})"


def _percent(value: float | None) -> str:
    return "×" if value is None else f"{value:.2f} %"
