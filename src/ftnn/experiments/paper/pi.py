"""The second experiment: memory networks memorise digits of π."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ftnn.errors import DataError, FtnnError
from ftnn.experiments.grid.checks import COUNT, FINITE, FLAG, POSITIVE, check
from ftnn.experiments.grid.jobs import Checkpoint, Outcome, Predecessor
from ftnn.experiments.grid.registry import Epochs, Line, Table, register
from ftnn.experiments.grid.rows import Addition, Row, imported, read_epochs, rows_of, stated
from ftnn.experiments.grid.task import OnProgress, Task
from ftnn.experiments.paper.values import distinct
from ftnn.training import Pass

if TYPE_CHECKING:
    from ftnn.nn import MemoryNetwork

HIDDEN = (128, 256, 512, 1024)
PAIRS = (200, 400, 800)
STATES = ("reset", "carried")
"""What happens to the memory between epochs: not `keep_state`, `keep_state`."""


@dataclass(frozen=True)
class PiCell:
    """A curve of the paper's second experiment: a memory network that memorises digits of π."""

    hidden: int
    pairs: int
    seed: int = 0
    gamma: float = -4
    epochs: int = 5000
    keep_state: bool = False
    """Whether the memory is carried from epoch to epoch, as in the published code, or reset. The paper does
    not say. Stores and files of earlier versions do not have this field: there, it was always reset."""

    def __post_init__(self) -> None:
        check(vars(self), _CHECKS)

    def task(self) -> PiTask:
        return PiTask(self)

    @property
    def matches_paper(self) -> bool:
        """Whether everything but the sizes, the seed and what the paper does not state is as in the paper."""
        return self == PiCell(self.hidden, self.pairs, self.seed, keep_state=self.keep_state)

    @property
    def state(self) -> str:
        """What happens to the memory between epochs, in a word."""
        return STATES[self.keep_state]

    def __str__(self) -> str:
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.hidden}H-{self.pairs}D {self.state}{seed}"


_CHECKS = {
    "keep_state": FLAG,
    "hidden": POSITIVE,
    "pairs": POSITIVE,
    "seed": COUNT,
    "gamma": FINITE,
    "epochs": POSITIVE,
}


def pi_cells(
    hidden: Sequence[int] = HIDDEN,
    pairs: Sequence[int] = PAIRS,
    seeds: Sequence[int] = (0,),
    epochs: int = 5000,
    states: Sequence[str] = ("carried",),
) -> list[PiCell]:
    """All combinations of these values; by default, the paper's 12 curves.

    **Arguments:**

    - `hidden`: numbers of hidden units. `pairs`: numbers of digits to learn.
    - `epochs`: passes over the digits.
    - `states`: `"reset"`, `"carried"` or both: what happens to the memory between epochs.
    """
    return [
        PiCell(units, count, seed, epochs=epochs, keep_state=_is_kept(state))
        for state in distinct("states", states)
        for seed in distinct("seeds", seeds)
        for count in distinct("pairs", pairs)
        for units in distinct("hidden", hidden)
    ]


def _is_kept(state: str) -> bool:
    if state not in STATES:
        raise FtnnError(f"unknown state {state!r}; expected {' or '.join(STATES)}")
    return state == "carried"


class PiTask(Task[PiCell]):
    kind = "pi"
    results = 2
    cell_type = PiCell
    epoch_type = Pass

    @property
    def spec(self) -> dict[str, Any]:
        # Without the choice, keys stay as they were before there was one.
        spec = super().spec
        return spec if self.cell.keep_state else {n: v for n, v in spec.items() if n != "keep_state"}

    @property
    def title(self) -> str:
        return "π"

    @property
    def work(self) -> str:
        return "digits of π"

    @property
    def epochs(self) -> int:
        return self.cell.epochs

    @property
    def effort(self) -> float:
        return self.epochs * self.cell.hidden * self.cell.pairs

    def check_row(self, row: Row) -> None:
        """Anything goes: a row from a CSV file has no digest."""

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        # Here because these load torch.
        import numpy as np
        import torch

        from ftnn.data import pi_digits
        from ftnn.experiments.paper.running import Running, arrays_of, load_arrays
        from ftnn.nn import MemoryNetwork
        from ftnn.training import digest, fit_sequence, initialise

        cell = self.cell
        running = Running(self.key, checkpoint, on_progress)
        net = MemoryNetwork(10, cell.hidden, 10, activation="logistic")
        initialise(net, cell.seed)
        passes: list[Pass] = []
        state = net.memory.reset(1)
        if checkpoint is not None:
            arrays = dict(checkpoint.arrays)
            state.copy_(torch.from_numpy(arrays.pop("state", state.numpy())))  # missing in older stores
            load_arrays(net, arrays)
            passes = [Pass(**values) for values in checkpoint.notes["epochs"]]

        def after_pass(last: Pass, net: MemoryNetwork) -> None:
            passes.append(last)
            if running.is_due:
                notes = {"epochs": [asdict(each) for each in passes]}
                arrays = {**arrays_of(net), "state": state.numpy().copy()}
                running.report(len(passes), last.loss, last.accuracy, notes, arrays)

        digits = pi_digits(cell.pairs + 1)
        history = fit_sequence(
            net,
            np.eye(10, dtype=np.float32)[digits[:-1]],
            digits[1:],
            gamma=cell.gamma,
            epochs=cell.epochs,
            done=len(passes),
            keep_state=cell.keep_state,
            state=state,
            callbacks=[after_pass],
        )
        return Outcome(
            key=self.key,
            epochs=tuple(passes),
            failed=history.failed,
            advice=history.advice,
            loss=passes[-1].loss if passes else None,
            arrays=arrays_of(net),
            lwt_accuracy=None,
            ft_accuracy=passes[-1].accuracy if passes else None,
            digest=digest(net),
            seconds=running.seconds,
        )


# --- the CSV table: one line per curve ---

COLUMNS = ("hidden", "pairs", "state", "seed", "seconds", "failed", "digest", "right")
"""`right`: how many pairs were predicted correctly in each epoch, separated by spaces."""
OLDER = ("hidden", "pairs", "seed", "epoch", "accuracy")
"""One line per epoch, and the memory always reset."""


def _lines(rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    by_key = epochs()
    chosen = [(cell, row) for cell, row in rows_of(PiTask, rows) if cell.matches_paper and row.key in by_key]
    for cell, row in sorted(chosen, key=lambda pair: _place(pair[0])):
        right = [round((epoch["accuracy"] or 0.0) * cell.pairs / 100) for epoch in by_key[row.key]]
        seconds = "" if row.cell_seconds is None else f"{row.cell_seconds:.1f}"
        identity = (cell.hidden, cell.pairs, cell.state, cell.seed)
        yield row, [*identity, seconds, row.failed or "", row.digest, " ".join(map(str, right))]


def _place(cell: PiCell) -> tuple[Any, ...]:
    return cell.state, cell.pairs, cell.hidden, cell.seed


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    for line in lines:
        cell = PiCell(*_sizes(line), keep_state=_is_kept(line.values["state"]))
        counts = line.values["right"].split(" ")
        if not all(count.isascii() and count.isdecimal() for count in counts):
            raise DataError(f"right is {line.values['right']!r:.60}; expected whole numbers")
        accuracies = [100 * int(count) / cell.pairs for count in counts]
        yield line.place, _addition(stated(cell.task(), line), line, accuracies)


def _read_older(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    curves: dict[Task[PiCell], list[float | None]] = defaultdict(list)
    last: dict[Task[PiCell], Line] = {}
    for line in lines:
        task = stated(PiCell(*_sizes(line)).task(), line)
        accuracies, epoch = curves[task], line.number("epoch", int)
        accuracies.append(line.number_or_none("accuracy"))
        last[task] = line
        if epoch != len(accuracies):
            raise DataError(f"epoch is {epoch}; expected {len(accuracies)}")
        _passes(accuracies[-1:])
    for task, accuracies in curves.items():
        yield last[task].place, _addition(task, last[task], accuracies)


def _sizes(line: Line) -> tuple[int, int, int]:
    hidden, pairs, seed = (line.number(name, int) for name in ("hidden", "pairs", "seed"))
    return hidden, pairs, seed


def _addition(task: Task[PiCell], line: Line, accuracies: Sequence[float | None]) -> Addition:
    values = line.values
    row = imported(
        replace(task.cell, epochs=len(accuracies)).task(),
        line,
        ft_accuracy=accuracies[-1],
        failed=values.get("failed") or None,
        cell_seconds=line.number_or_none("seconds") if "seconds" in values else None,
        digest=values.get("digest", ""),
    )
    return row, _passes(accuracies), None


def _passes(accuracies: Sequence[float | None]) -> str:
    """Epochs as JSON, checked."""
    passes = [asdict(Pass(number, math.nan, each, 0.0)) for number, each in enumerate(accuracies, 1)]
    text = json.dumps(passes)
    read_epochs(text, PiTask.kind)
    return text


register(PiTask, tables=[Table("pi", PiTask.kind, COLUMNS, _lines, _read, older={OLDER: _read_older})])
