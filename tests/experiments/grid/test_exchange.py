"""Export of results from a store, and import into another."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from ftnn.errors import DataError, FtnnError
from ftnn.experiments import Cell, PiCell, Store
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.jobs import Outcome
from ftnn.experiments.grid.registry import KINDS, TABLES
from ftnn.experiments.grid.rows import ORIGIN
from ftnn.experiments.paper import pi
from ftnn.experiments.paper.conic.cells import conic_cells, run_conic
from ftnn.experiments.paper.mnist.cells import FineTuning
from ftnn.experiments.paper.mnist.tables import COLUMNS, OTHER_COLUMNS
from ftnn.experiments.report import collect, markdown, page
from ftnn.training import Pass
from tests.experiments.quick import cell, digests, import_file, run_inline

CELLS = [
    Cell("F12", "tanh", 5, -3),
    Cell("F03", "relu", 1, -1, seed=2),
    Cell("F03", "relu", 1, -1),
    Cell("F03", "relu", 1, 0),
    Cell("p*tan(q*x + r) where q in [-10, 10]", "relu", 1, 0),
]
OTHER = replace(CELLS[0], data="mnist", epochs=(3, 4), width=8, batch_size=2)
CURVE = PiCell(128, 200)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With invented results: the paper's settings would take too long."""
    store = Store(tmp_path / "a.sqlite")
    for number, each in enumerate([*CELLS, OTHER]):
        task = each.task()
        failed = "it was not finite" if each == CELLS[3] else None
        store.record(
            task,
            Outcome(
                *(
                    task.key,
                    (),
                    failed,
                    None,
                    0.1,
                    {},
                    90.25 + number,
                    91.5 + number,
                    f"{number:064x}",
                    12.34,
                ),
                validation_accuracy=92.25 + number,
                lwt_validation_accuracy=89.75 + number,
            ),
            {"ftnn": "1", "cpu": "some-cpu"},
        )
    passes = tuple(Pass(epoch, 1.0, epoch % 7 * 10.0, 0.1) for epoch in range(1, 5001))
    task = CURVE.task()
    store.record(task, Outcome(task.key, passes, None, None, 0.1, {}, None, 20.0, "f" * 64, 5.0), {})
    return store


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TestCsv:
    def test_mnist_csv_has_the_cells_with_the_papers_settings_in_order(
        self, store: Store, tmp_path: Path
    ) -> None:
        rows, left_out = export(store, tmp_path / "m.csv", "mnist")
        assert (rows, left_out) == (4, 1)
        rows_read = read(tmp_path / "m.csv")
        assert tuple(rows_read[0]) == (*COLUMNS, *ORIGIN)
        assert [(row["function"], row["gamma"], row["seed"]) for row in rows_read] == [
            ("F03", "0", "0"),
            ("F03", "-1", "0"),
            ("F03", "-1", "2"),
            ("F12", "-3", "0"),
        ]
        assert rows_read[3] == {
            "hidden_layers": "5",
            "function": "F12",
            "activation": "tanh",
            "gamma": "-3",
            "lwt_accuracy": "90.25",
            "ft_accuracy": "91.50",
            "seed": "0",
            "seconds": "12.3",
            "failed": "",
            "digest": "0" * 64,
            "lwt_validation_accuracy": "89.75",
            "validation_accuracy": "92.25",
            "data": "mnist:50000",
            "results": str(FineTuning.results),
            "cpu": "some-cpu",
        }

    def test_only_results_of_its_own_kind_are_called_left_out(self, store: Store, tmp_path: Path) -> None:
        """`OTHER` is no conic boundary, and `custom` has functions of the user on all images too."""
        task = Cell("p*tan(q*x)", "tanh", 1, 0.0, data="mnist").task()
        store.record(task, Outcome(task.key, (), None, None, 0.1, {}, 90.0, 90.0, "a" * 64, 1.0), {})
        left_out = {what: export(store, tmp_path / f"{what}.csv", what)[1] for what in TABLES}
        assert left_out == {"mnist": 1, "custom": 1, "other": 0, "direct": 0, "pi": 0, "conic": 0}

    def test_a_failed_cell_has_no_accuracies_in_csv(self, store: Store, tmp_path: Path) -> None:
        export(store, tmp_path / "m.csv", "mnist")
        row = read(tmp_path / "m.csv")[0]
        assert (row["lwt_accuracy"], row["ft_accuracy"], row["failed"]) == ("", "", "it was not finite")

    def test_custom_functions_have_their_own_csv(self, store: Store, tmp_path: Path) -> None:
        export(store, tmp_path / "m.csv", "custom")
        assert [row["function"] for row in read(tmp_path / "m.csv")] == [
            "p*tan(q*x + r) where p in [-0.1, 0.1] and q in [-10, 10] and r in [-0.1, 0.1]"
        ]

    def test_csv_without_ranges_means_the_papers(self, store: Store, tmp_path: Path) -> None:
        """Version 0.1 exported functions as the user had written them."""
        path = tmp_path / "m.csv"
        export(store, path, "custom")
        written = path.read_text()
        path.write_text(written.replace(read(path)[0]["function"], CELLS[4].function))
        with Store(tmp_path / "b.sqlite") as other:
            import_file(other, path)
            assert run_inline([CELLS[4]], other).ran == []
            export(other, path, "custom")
        assert path.read_text() == written

    def test_csv_of_other_settings_lists_the_settings(self, store: Store, tmp_path: Path) -> None:
        assert export(store, tmp_path / "o.csv", "other") == (1, 0)
        (line,) = read(tmp_path / "o.csv")
        assert tuple(line) == (*OTHER_COLUMNS, *ORIGIN)
        settings = [line[name] for name in ("function", "data", *OTHER_COLUMNS[len(COLUMNS) :])]
        assert settings == ["F12", "mnist", "3", "4", "8", "2"]

    def test_csv_with_an_invalid_setting_imports_nothing(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "o.csv"
        export(store, path, "other")
        path.write_text(path.read_text().replace(",mnist,", ",cifar,"))
        with Store(tmp_path / "b.sqlite") as other:
            with pytest.raises(DataError, match="line 2: unknown data 'cifar'"):
                import_file(other, path)
            assert other.rows() == []

    def test_csv_of_pi_has_a_line_for_each_curve(self, store: Store, tmp_path: Path) -> None:
        assert export(store, tmp_path / "p.csv", "pi") == (1, 0)
        (line,) = read(tmp_path / "p.csv")
        assert tuple(line) == (*pi.COLUMNS, *ORIGIN)
        right = line.pop("right").split(" ")
        assert (len(right), right[:8]) == (5000, ["20", "40", "60", "80", "100", "120", "0", "20"])
        assert line == {
            "hidden": "128",
            "pairs": "200",
            "state": "reset",
            "seed": "0",
            "seconds": "5.0",
            "failed": "",
            "digest": "f" * 64,
            "results": str(pi.PiTask.results),
            "cpu": "",
        }

    def test_csv_of_pi_keeps_both_states(self, store: Store, tmp_path: Path) -> None:
        task = replace(CURVE, keep_state=True).task()
        passes = (Pass(1, 1.0, 12.5, 0.1),) * 5000
        store.record(task, Outcome(task.key, passes, None, None, 0.1, {}, None, 12.5, "e" * 64, 5.0), {})
        export(store, tmp_path / "p.csv", "pi")
        with Store(tmp_path / "b.sqlite") as other:
            assert import_file(other, tmp_path / "p.csv") == (2, 2)
            by_state = {row.task.cell.state: row for row in other.rows()}
            assert {state: row.ft_accuracy for state, row in by_state.items()} == {
                "carried": 12.5,
                "reset": 20.0,
            }
            assert by_state["carried"].key == task.key

    def test_csv_of_pi_with_invalid_counts_imports_nothing(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        export(store, path, "pi")
        for old, new, message in (
            ("20 40 60", "20 -40 60", "expected whole numbers"),
            ("20 40 60", "20 400 60", "accuracy is 200.0; expected"),
            (",reset,", ",kept,", "unknown state 'kept'; expected reset or carried"),
        ):
            (tmp_path / "q.csv").write_text(path.read_text().replace(old, new, 1))
            with (
                Store(tmp_path / "b.sqlite") as other,
                pytest.raises(DataError, match=message),
            ):
                import_file(other, tmp_path / "q.csv")

    @pytest.mark.parametrize("what", ["mnist", "custom", "other", "pi"])
    def test_imported_cells_are_not_run_again(self, store: Store, tmp_path: Path, what: str) -> None:
        path = tmp_path / "m.csv"
        export(store, path, what)
        with Store(tmp_path / "b.sqlite") as other:
            rows, new = import_file(other, path)
            assert rows == new
            assert new == {"mnist": 4, "custom": 1, "other": 1, "pi": 1}[what]
            assert import_file(other, path) == (rows, 0)
            done = {"mnist": CELLS[:4], "custom": CELLS[4:], "other": [OTHER], "pi": [CURVE]}[what]
            assert run_inline(done, other).ran == []
            export(other, tmp_path / "again.csv", what)
        assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("F12", "F99"), "line 5: 'F99'"),
            (("tanh", "tangent"), "line 5: unknown activation 'tangent'"),
            (("91.50", "191.50"), "ft_accuracy is 191.5; expected null or a number from 0 to 100"),
            (("91.50", ""), "must have a reason in failed"),
            (("-3", "minus three"), "minus three"),
            (("0" * 64, "00"), "expected a SHA-256 digest"),
            (("some-cpu", "some-cpu,"), "line 2: 16 fields in 15 columns"),
            ((f"{FineTuning.results},some", "99,some"), "results is 99; expected a version from 1 to"),
            ((f"{FineTuning.results},some", "new,some"), "results is 'new'; expected a whole number"),
            (("gamma", "rate"), "has the columns hidden_layers, function, activation, rate"),
        ],
    )
    def test_invalid_csv_imports_nothing(
        self, store: Store, tmp_path: Path, change: tuple[str, str], message: str
    ) -> None:
        path = tmp_path / "m.csv"
        export(store, path, "mnist")
        path.write_text(path.read_text().replace(*change))
        with Store(tmp_path / "b.sqlite") as other:
            with pytest.raises(DataError) as caught:
                import_file(other, path)
            assert message in str(caught.value)
            assert other.rows() == []

    def test_csv_of_pi_with_a_missing_epoch_imports_nothing(self, store: Store, tmp_path: Path) -> None:
        """In the format of version 0.1: a line for each epoch."""
        path = older_pi(tmp_path, [1, 2, 3, 4, 5, 6, 8])
        with (
            Store(tmp_path / "b.sqlite") as other,
            pytest.raises(DataError, match="epoch is 8; expected 7"),
        ):
            import_file(other, path)


def older_pi(folder: Path, epochs: list[int]) -> Path:
    lines = [",".join(pi.OLDER), *(f"128,200,0,{epoch},{epoch % 7 * 10.0:.2f}" for epoch in epochs)]
    (folder / "p.csv").write_text("\n".join(lines))
    return folder / "p.csv"


class TestVersionsOfResults:
    def test_curves_of_0_1_had_a_line_for_each_epoch_and_an_empty_memory(self, tmp_path: Path) -> None:
        path = older_pi(tmp_path, list(range(1, 5001)))
        with Store(tmp_path / "b.sqlite") as other:
            assert import_file(other, path) == (1, 1)
            (row,) = other.rows()
            assert (row.task, row.ft_accuracy) == (CURVE.task().at(1), 20.0)
            assert len(other.epochs(row.key)) == 5000

    """Each row keeps the version of its results, through files and next to newer rows."""

    @pytest.mark.parametrize("what", ["mnist", "custom", "other", "pi"])
    def test_csv_of_0_1_is_filed_under_the_version_that_0_1_had(
        self, store: Store, tmp_path: Path, what: str
    ) -> None:
        path = tmp_path / "m.csv"
        export(store, path, what)
        with path.open(newline="") as file:
            lines = [line[: -len(ORIGIN)] for line in csv.reader(file)]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(lines)
        with Store(tmp_path / "b.sqlite") as other:
            rows, new = import_file(other, path)
            assert rows == new > 0
            assert {row.task.version for row in other.rows()} == {1 if what == "pi" else 2}
            assert all(row.key == row.task.key for row in other.rows())
            assert not other.done(row.task.at(row.task.results).key for row in other.rows())
            export(other, tmp_path / "again.csv", what)
        assert [tuple(line.values())[-2:] for line in read(tmp_path / "again.csv")] == [
            ("1" if what == "pi" else "2", "")
        ] * (len(lines) - 1)

    def test_older_rows_never_replace_newer_ones(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        export(store, path, "mnist")
        current = store.rows()
        older = path.read_text().replace(f",{FineTuning.results},some-cpu", ",1,other-cpu")
        path.write_text(older.replace("91.50", "11.50"))
        assert import_file(store, path) == (4, 4)
        assert store.rows() == current
        assert import_file(store, path) == (4, 0)
        assert store.count() == len(current) + 4

    def test_newer_rows_replace_older_ones_in_every_view(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        export(store, path, "mnist")
        new = path.read_text()
        path.write_text(new.replace(f",{FineTuning.results},some-cpu", ",2,other-cpu"))
        with Store(tmp_path / "b.sqlite") as other:
            import_file(other, path)
            assert [(row.task.version, row.versions) for row in other.rows()] == [
                (2, {"cpu": "other-cpu"})
            ] * 4
            path.write_text(new)
            assert import_file(other, path) == (4, 4)
            assert {row.task.version for row in other.rows()} == {FineTuning.results}
            export(other, tmp_path / "again.csv", "mnist")
        assert (tmp_path / "again.csv").read_text() == new

    def test_a_curve_may_have_two_versions_in_one_file(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        export(store, path, "pi")
        header, line = path.read_text().splitlines()
        path.write_text("\n".join([header, line.removesuffix("2,") + "1,old-cpu", line]))
        with Store(tmp_path / "b.sqlite") as other:
            assert import_file(other, path) == (2, 2)
            assert [row.task.version for row in other.rows()] == [2]
            (row,) = other.rows([CURVE.task().at(1).key])
            assert row.versions == {"cpu": "old-cpu"}

    @pytest.mark.parametrize("stated", [True, False])
    def test_parquet_keeps_versions_and_without_the_column_has_those_of_0_1(
        self, tmp_path: Path, stated: bool
    ) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "a.parquet"
        with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite") as other:
            run_inline([cell(), PiCell(4, 6, epochs=3)], store)
            export(store, path)
            if not stated:
                parquet.write_table(parquet.read_table(path).drop_columns(["results"]), path)
            import_file(other, path)
            versions = {row.task.kind: row.task.version for row in other.rows()}
            assert sorted(digests(other).values()) == sorted(digests(store).values())
        in_0_1 = {"lwt": 1, "ft": 2, "pi": 1}
        assert versions == ({kind: KINDS[kind].results for kind in in_0_1} if stated else in_0_1)

    def test_the_report_shows_older_results_and_says_so(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        export(store, path, "mnist")
        assert collect(store).older == 0
        path.write_text(path.read_text().replace(f",{FineTuning.results},some-cpu", ",2,other-cpu"))
        with Store(tmp_path / "b.sqlite") as other:
            import_file(other, path)
            report = collect(other)
        assert (report.older, report.rows, report.to_dict()["older"]) == (4, 4, 4)
        for text in (page(report), markdown(report)):
            assert "4 of 4 results are from an older version of ftnn" in text

    def test_pictures_of_older_conic_results_are_drawn(self, tmp_path: Path) -> None:
        with Store(tmp_path / "a.sqlite") as store:
            (row,) = run_conic(store, conic_cells(["three-ellipses"]))
            task = row.task.at(1)
            arrays = store.arrays_as_bytes(row.key)
            with Store(tmp_path / "b.sqlite") as other:
                other.add(replace(row, key=task.key, task=task), "[]", arrays)
                ((result, picture),) = collect(other).conic
        assert result.results == 1
        assert picture is not None


class TestParquet:
    @pytest.mark.slow
    def test_parquet_has_everything(self, tmp_path: Path) -> None:
        with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite") as other:
            run_inline([cell(layers=2), PiCell(4, 6, epochs=3)], store)
            assert export(store, tmp_path / "a.parquet") == (4, 0)
            assert import_file(other, tmp_path / "a.parquet") == (4, 4)
            assert digests(other) == digests(store)
            assert other.rows() == store.rows()
            for key in digests(store):
                assert other.epochs(key) == store.epochs(key)
            # Stages after an imported one can be run.
            assert len(run_inline([cell(layers=3)], other).ran) == 2

    def test_parquet_without_parameters_can_be_completed_later(self, tmp_path: Path) -> None:
        with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite") as other:
            run_inline([cell()], store)
            export(store, tmp_path / "a.parquet", parameters=False)
            import_file(other, tmp_path / "a.parquet")
            assert run_inline([cell()], other).ran == []
            assert other.arrays(cell().task().key) is None
            # What is missing can be added later.
            export(store, tmp_path / "a.parquet")
            assert import_file(other, tmp_path / "a.parquet") == (2, 0)
            assert other.arrays(cell().task().key) is not None

    def test_damaged_parquet_imports_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
        with Store(tmp_path / "b.sqlite") as other, pytest.raises(DataError, match="cannot read"):
            import_file(other, tmp_path / "a.parquet")


def test_unknown_file_types_and_tables_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FtnnError, match=r"must end in .csv or .parquet"):
        export(store, tmp_path / "a.txt")
    with pytest.raises(FtnnError, match=r"must end in .csv or .parquet"):
        import_file(store, tmp_path / "a.txt")
    with pytest.raises(FtnnError, match="mnist, custom, other, direct"):
        export(store, tmp_path / "a.csv", "all")


def test_a_file_that_cannot_be_written_or_read_is_an_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FtnnError, match="cannot write"):
        export(store, tmp_path / "no" / "a.csv", "mnist")
    with pytest.raises(DataError, match="cannot read"):
        import_file(store, tmp_path / "no.csv")
