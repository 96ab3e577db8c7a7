"""A grid that is continued from CSV files, which keep no parameters."""

from pathlib import Path

from ftnn.experiments import Cell, Store, mnist_cells
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.jobs import Job
from ftnn.experiments.grid.scheduler import run
from tests.experiments.quick import Inline, Quiet, import_file, run_inline

SETTINGS = {"data": "mnist:200", "epochs": (1, 1), "width": 4}


def grid(gammas: list[float]) -> list[Cell]:
    return mnist_cells([1, 3], ["F03"], ["logistic"], gammas, **SETTINGS)  # pyright: ignore[reportArgumentType]


class _Open(Inline):
    """Notes how many chains are open: begun, and not yet at their last stage."""

    def __init__(self, slots: int):
        super().__init__(slots)
        self.most = 0
        self._left: dict[float, int] = {}

    def submit(self, job: Job) -> None:
        super().submit(job)
        gamma = job.task.cell.gamma
        self._left[gamma] = self._left.get(gamma, 5) - 1  # three layers, and fine-tuning of one and of three
        self.most = max(self.most, sum(left > 0 for left in self._left.values()))


def test_a_new_grid_has_no_more_open_chains_than_workers(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        for slots in (1, 2):
            executor = _Open(slots)
            run(
                [each.task() for each in grid([-slots - each / 4 for each in range(4)])],
                store,
                executor,
                Quiet(),
            )
            assert len(executor.ran) == 20
            assert executor.most == slots


def test_a_grid_continued_from_csv_runs_only_what_is_missing_or_older(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    with Store(tmp_path / "a.sqlite") as store:
        run_inline(grid([0, -1, -2]), store)
        export(store, path, "other")
    header, *lines = path.read_text().splitlines()
    cpu = lines[0].rpartition(",")[2]

    def edited(line: str) -> str | None:
        layers, _, _, gamma = line.split(",")[:4]
        if (layers, gamma) == ("3", "-1"):
            return None
        return line.replace(f",4,{cpu}", f",3,{cpu}") if gamma == "-2" else line

    kept = [new for line in lines if (new := edited(line)) is not None]
    assert len(kept) == 5
    path.write_text("\n".join([header, *kept]) + "\n")
    with Store(tmp_path / "b.sqlite") as store:
        import_file(store, path)
        ran = [(each.cell.gamma, each.title) for each in run_inline(grid([0, -1, -2]), store).ran]
        assert sorted(ran) == [
            *((-2, f"FT of {layers}") for layers in (1, 3)),
            *((-2, f"LWT {layer}") for layer in (1, 2, 3)),
            (-1, "FT of 3"),
            *((-1, f"LWT {layer}") for layer in (1, 2, 3)),
        ]
        export(store, path, "other")
        assert path.read_text().count(f",4,{cpu}") == 6
