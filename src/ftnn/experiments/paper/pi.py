"""The second experiment: memory networks memorise digits of π."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ftnn.errors import DataError
from ftnn.experiments.grid.checks import COUNT, FINITE, POSITIVE, check
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


@dataclass(frozen=True)
class PiCell:
    """A curve of the paper's second experiment: a memory network that memorises digits of π."""

    hidden: int
    pairs: int
    seed: int = 0
    gamma: float = -4
    epochs: int = 5000

    def __post_init__(self) -> None:
        check(vars(self), _CHECKS)

    def task(self) -> PiTask:
        return PiTask(self)

    @property
    def matches_paper(self) -> bool:
        """Whether everything but the sizes and the seed is as in the paper."""
        return self == PiCell(self.hidden, self.pairs, self.seed)

    is_papers = matches_paper

    def __str__(self) -> str:
        return f"{self.hidden}H-{self.pairs}D" + (f" seed {self.seed}" if self.seed else "")


_CHECKS = {"hidden": POSITIVE, "pairs": POSITIVE, "seed": COUNT, "gamma": FINITE, "epochs": POSITIVE}


def pi_cells(
    hidden: Sequence[int] = HIDDEN,
    pairs: Sequence[int] = PAIRS,
    seeds: Sequence[int] = (0,),
    epochs: int = 5000,
) -> list[PiCell]:
    """All combinations of these values; by default, the paper's 12 curves.

    **Arguments:**

    - `hidden`: numbers of hidden units. `pairs`: numbers of digits to learn.
    - `epochs`: passes over the digits.
    """
    return [
        PiCell(units, count, seed, epochs=epochs)
        for seed in distinct("seeds", seeds)
        for count in distinct("pairs", pairs)
        for units in distinct("hidden", hidden)
    ]


class PiTask(Task[PiCell]):
    kind = "pi"
    results = 2
    cell_type = PiCell
    epoch_type = Pass

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

        from ftnn.data import pi_digits
        from ftnn.experiments.paper.running import Running, arrays_of, load_arrays
        from ftnn.nn import MemoryNetwork
        from ftnn.training import digest, fit_sequence, initialise

        cell = self.cell
        running = Running(self.key, checkpoint, on_progress)
        net = MemoryNetwork(10, cell.hidden, 10, activation="logistic")
        initialise(net, cell.seed)
        passes: list[Pass] = []
        if checkpoint is not None:
            load_arrays(net, checkpoint.arrays)
            passes = [Pass(**values) for values in checkpoint.notes["epochs"]]

        def after_pass(last: Pass, net: MemoryNetwork) -> None:
            passes.append(last)
            if running.is_due:
                notes = {"epochs": [asdict(each) for each in passes]}
                running.report(len(passes), last.loss, last.accuracy, notes, arrays_of(net))

        digits = pi_digits(cell.pairs + 1)
        history = fit_sequence(
            net,
            np.eye(10, dtype=np.float32)[digits[:-1]],
            digits[1:],
            gamma=cell.gamma,
            epochs=cell.epochs,
            done=len(passes),
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


# --- the CSV table: one line per epoch ---

COLUMNS = ("hidden", "pairs", "seed", "epoch", "accuracy")


def _lines(rows: Iterable[Row], epochs: Callable[[], Epochs]) -> Iterator[tuple[Row, list[Any]]]:
    by_key = epochs()
    chosen = [(cell, row) for cell, row in rows_of(PiTask, rows) if cell.matches_paper]
    for cell, row in sorted(chosen, key=lambda pair: (pair[0].pairs, pair[0].hidden, pair[0].seed)):
        for epoch in by_key.get(row.key, ()):
            accuracy = "" if epoch["accuracy"] is None else f"{epoch['accuracy']:.2f}"
            yield row, [cell.hidden, cell.pairs, cell.seed, epoch["epoch"], accuracy]


def _read(lines: Iterable[Line]) -> Iterator[tuple[str, Addition]]:
    curves: dict[Task[PiCell], list[dict[str, Any]]] = defaultdict(list)
    last: dict[Task[PiCell], Line] = {}
    for line in lines:
        cell = PiCell(*(line.number(name, int) for name in ("hidden", "pairs", "seed")))
        task = stated(cell.task(), line)
        passes, epoch = curves[task], line.number("epoch", int)
        passes.append(asdict(Pass(epoch, math.nan, line.number_or_none("accuracy"), 0.0)))
        last[task] = line
        if epoch != len(passes):
            raise DataError(f"epoch is {epoch}; expected {len(passes)}")
        read_epochs(json.dumps(passes[-1:]), PiTask.kind)
    for task, passes in curves.items():
        cell, line = replace(task.cell, epochs=len(passes)), last[task]
        row = imported(cell.task(), line, ft_accuracy=passes[-1]["accuracy"])
        yield line.place, (row, json.dumps(passes), None)


register(PiTask, tables=[Table("pi", COLUMNS, _lines, _read)])
