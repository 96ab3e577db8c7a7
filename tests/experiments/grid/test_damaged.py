"""Invalid rows: none gets into a store, and one that is already there does not hide the others."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ftnn.cli import app
from ftnn.errors import DataError, FtnnError
from ftnn.experiments import Cell, PiCell, Store
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.jobs import Checkpoint, Outcome
from ftnn.experiments.grid.registry import task_from_text
from ftnn.experiments.paper.mnist.tables import COLUMNS
from ftnn.experiments.report import collect, markdown, page
from tests.experiments import stored
from tests.experiments.quick import import_file

GOOD, BAD = Cell("F03", "relu", 1, -1), Cell("F12", "tanh", 1, -4)
CURVE = PiCell(4, 5, epochs=2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "a.sqlite")
    for each, ft in ((GOOD, 96.5), (BAD, 97.5)):
        epochs = [stored.epoch(1, ft)]
        stored.cell(store, each.function, each.activation, 1, each.gamma, ft=ft, lwt=ft, epochs=epochs)
    passes = [{"epoch": n, "loss": 0.5, "accuracy": 50.0, "seconds": 0.1} for n in (1, 2)]
    store.add(stored.row(CURVE.task(), 50.0), json.dumps(passes), None)
    return store


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "b.sqlite")


def rewritten(store: Store, path: Path, **changes: Any) -> Path:
    """The store as Parquet, with other values in the row of the cell `BAD`."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    export(store, path)
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    for row in rows:
        if '"F12"' in row["task"]:
            row.update(changes)
    # Columns of mixed types become text, as another program might write them.
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name in changes:
        if len({type(each) for each in columns[name] if each is not None}) > 1:
            columns[name] = [None if each is None else str(each) for each in columns[name]]
    parquet.write_table(arrow.table(columns), path)
    return path


PASSES = json.dumps([{"epoch": 1, "loss": 1.0, "accuracy": 50.0, "seconds": 1.0}])
WRONG: list[tuple[str, Any]] = [
    ("ft_accuracy", "91 %"),
    ("ft_accuracy", 150.0),
    ("ft_accuracy", -0.5),
    ("ft_accuracy", float("nan")),
    ("ft_accuracy", None),
    ("lwt_accuracy", float("inf")),
    ("lwt_accuracy", True),
    ("loss", "small"),
    ("digest", None),
    ("digest", "00"),
    ("digest", "x" * 64),
    ("seconds", None),
    ("seconds", -1.0),
    ("seconds", float("nan")),
    ("cell_seconds", float("inf")),
    ("failed", ""),
    ("failed", 5),
    ("advice", b"\xff"),
    ("versions", None),
    ("versions", "[]"),
    ("versions", '{"ftnn": 1}'),
    ("versions", '{"ftnn": "\\ud800"}'),
    ("versions", "{"),
    ("finished", None),
    ("finished", "yesterday"),
    ("task", "5"),
    ("task", 5),
    ("task", None),
    ("task", "{"),
    ("task", "[" * 100_000),
    ("task", '{"kind": "guess"}'),
    ("task", '{"kind": "pi", "hidden": "4", "pairs": 5}'),
    ("task", '{"kind": "pi", "hidden": 4, "pairs": 5, "pace": 1}'),
    ("task", '{"kind": "pi", "hidden": 4, "pairs": 5, "gamma": NaN}'),
    ("task", '{"kind": ["ft"]}'),
    ("task", '{"kind": "conic", "problem": ["ellipses"]}'),
    ("task", '{"kind": "ft"}'),
    ("epochs", "5"),
    ("epochs", "[5]"),
    ("epochs", "[{}]"),
    ("epochs", PASSES),
    ("epochs", json.dumps([{**stored.epoch(1, 90.0), "test_accuracy": "91 %"}])),
    ("epochs", json.dumps([{**stored.epoch(1, 90.0), "test_accuracy": 150}])),
    ("epochs", json.dumps([{**stored.epoch(1, 90.0), "stage": "tea"}])),
    ("parameters", b"no safetensors"),
]


def cell_as(**changes: Any) -> str:
    known = {"kind": "ft", "function": "F12", "activation": "tanh", "hidden_layers": 1, "gamma": -4.0}
    more = {"seed": 0, "data": "mnist", "epochs": [15, 15], "width": 128, "batch_size": 16}
    return json.dumps({**known, **more, **changes})


WRONG_CELLS = [
    ("task", cell_as(**{name: value}))
    for name, value in [
        ("function", 5),
        ("function", "p*"),
        ("activation", ["tanh"]),
        ("hidden_layers", "1"),
        ("hidden_layers", True),
        ("hidden_layers", 1.0),
        ("gamma", "0"),
        ("gamma", float("nan")),
        ("seed", -1),
        ("seed", 0.5),
        ("data", 5),
        ("data", "mnist:\u0665\u0665"),
        ("epochs", 15),
        ("epochs", [15]),
        ("epochs", ["15", "15"]),
        ("width", None),
        ("batch_size", "16"),
    ]
]


@pytest.mark.parametrize(("name", "value"), [*WRONG, *WRONG_CELLS])
def test_importing_an_invalid_row_imports_nothing(
    store: Store, other: Store, tmp_path: Path, name: str, value: Any
) -> None:
    other.keep(BAD.task().key, Checkpoint({"n": 1}, {"a": np.zeros(2)}))
    other.claim([BAD.task().key], "me", 60)
    path = rewritten(store, tmp_path / "bad.parquet", **{name: value})
    with pytest.raises(DataError, match=r"bad\.parquet, row [123]: .*nothing was imported"):
        import_file(other, path)
    assert (other.rows(), other.count()) == ([], 0)
    assert other.checkpoint(BAD.task().key) is not None
    assert not other.claim([BAD.task().key], "you", 60)


def test_the_unchanged_rows_are_imported(store: Store, other: Store, tmp_path: Path) -> None:
    """So the rows above are refused only because of what was changed in them."""
    assert import_file(other, rewritten(store, tmp_path / "good.parquet", loss=float("inf"))) == (3, 3)
    assert [replace(row, loss=None) for row in other.rows()] == store.rows()


@pytest.mark.parametrize("name", ["task", "digest", "epochs"])
def test_a_missing_parquet_column_is_named(store: Store, other: Store, tmp_path: Path, name: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(store, tmp_path / "a.parquet")
    parquet.write_table(
        parquet.read_table(tmp_path / "a.parquet").drop_columns([name]), tmp_path / "b.parquet"
    )
    with pytest.raises(DataError, match=f"'{name}'"):
        import_file(other, tmp_path / "b.parquet")


CSV = ",".join(COLUMNS)
LINE = f"1,F12,tanh,-4,97.0,97.5,0,20.5,,{'a' * 64},,,mnist:50000"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LINE.replace("97.5", "150"), "ft_accuracy is 150.0; expected null or a number from 0 to 100"),
        (LINE.replace("97.5", "91 %"), "ft_accuracy is '91 %'"),
        (LINE.replace("97.5", "nan"), "ft_accuracy is nan"),
        (LINE.replace("97.5", ""), "must have a reason in failed"),
        (LINE.replace("20.5", ""), "seconds is ''"),
        (LINE.replace("20.5", "-1"), "cell_seconds is -1.0"),
        (LINE.replace("a" * 64, "z" * 64), "expected a SHA-256 digest"),
        (LINE.replace(",0,20.5", ",0.5,20.5"), "seed is '0.5'"),
        (LINE + ",more", "14 fields"),
        (LINE[: LINE.rindex(",")], "12 fields"),
    ],
)
def test_csv_rows_are_checked_like_parquet_rows(
    other: Store, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join([CSV, LINE.replace("F12", "F03"), line]), "utf-8")
    with pytest.raises(DataError) as caught:
        import_file(other, path)
    assert "line 3" in str(caught.value)
    assert message in str(caught.value)
    assert other.count() == 0


def test_csv_may_start_with_a_byte_order_mark(other: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join([CSV, LINE]), "utf-8-sig")
    assert import_file(other, tmp_path / "a.csv") == (1, 1)


def test_csv_without_the_expected_header_is_refused_even_if_empty(other: Store, tmp_path: Path) -> None:
    for text in ("", "rate,accuracy\n"):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(DataError, match="columns"):
            import_file(other, tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(CSV + "\n")
    assert import_file(other, tmp_path / "a.csv") == (0, 0)


def test_if_one_file_is_invalid_no_file_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_text("\n".join([CSV, LINE]))
    Path("bad.csv").write_text("\n".join([CSV, LINE.replace("97.5", "150")]))
    done = CliRunner().invoke(app, ["store", "import", "good.csv", "bad.csv"])
    assert done.exit_code == 2
    with Store("ftnn.sqlite") as opened:
        assert opened.count() == 0


def test_results_of_training_are_checked_like_imported_rows(other: Store) -> None:
    task = GOOD.task()
    for wrong in ({"ft_accuracy": 150.0}, {"digest": ""}, {"seconds": float("nan")}):
        outcome = Outcome(task.key, (), None, None, 0.1, {}, 90.0, 91.0, "a" * 64, 1.0)
        with pytest.raises(FtnnError, match=next(iter(wrong))):
            other.record(task, replace(outcome, **wrong), {})
    with pytest.raises(FtnnError, match="epochs"):
        other.add(stored.row(task, 90.0), "[5]", None)
    with pytest.raises(FtnnError, match="key"):
        other.add(replace(stored.row(task, 90.0), key="k"), None, None)
    assert other.count() == 0


def test_importing_a_layer_without_parameters_keeps_its_checkpoint_and_claim(other: Store) -> None:
    """Later stages cannot use such a row: the stage still has to run, from its checkpoint."""
    task = GOOD.task().before
    assert task is not None
    other.keep(task.key, Checkpoint({"n": 1}, {"a": np.zeros(2)}))
    other.claim([task.key], "me", 60)
    other.add(stored.row(task, None, lwt=90.0), None, None)
    assert other.checkpoint(task.key) is not None
    assert not other.claim([task.key], "you", 60)


@pytest.mark.parametrize("text", ["5", "[]", "null", "{", '{"kind": 5}'])
def test_an_unreadable_task_raises_an_ftnn_error(text: str) -> None:
    with pytest.raises(FtnnError):
        task_from_text(text)


# --- damaged stores, such as version 0.1 could leave after an import ---

DAMAGE: list[tuple[str, str, Any]] = [
    ("stages", "ft_accuracy", "91 %"),
    ("stages", "ft_accuracy", 150),
    ("stages", "lwt_accuracy", b"\x00"),
    ("stages", "seconds", "long"),
    ("stages", "task", "5"),
    ("stages", "versions", "5"),
    ("stages", "finished", 5),
    ("stages", "digest", ""),
    ("stages", "failed", b"\xff\xfe"),
]


def damage(store: Store, table: str, column: str, value: Any) -> None:
    with sqlite3.connect(store.path) as db:
        new = "CAST(? AS TEXT)" if column == "failed" else "?"  # makes bytes a text that is not UTF-8
        db.execute(f"UPDATE {table} SET {column} = {new} WHERE key = ?", (value, BAD.task().key))
    db.close()


@pytest.mark.parametrize(("table", "column", "value"), DAMAGE)
def test_a_damaged_row_does_not_hide_other_rows(
    store: Store, other: Store, tmp_path: Path, table: str, column: str, value: Any
) -> None:
    damage(store, table, column, value)
    assert store.rows([each.task().key for each in (GOOD, BAD, CURVE)]) == store.rows()
    assert {row.task.cell for row in store.rows()} == {GOOD, CURVE}
    (damaged,) = store.survey()[1]
    assert damaged.key == BAD.task().key
    store.close()
    for file in ("m.csv", "all.parquet", "report.md", "report.html"):
        verb = ("report", "--out") if file.startswith("report") else ("store", "export")
        done = CliRunner().invoke(app, [*verb, str(tmp_path / file), "--store", str(store.path)])
        assert done.exit_code == 0, done.output
        assert BAD.task().key in done.stderr
        assert "F03" in (tmp_path / file).read_bytes().decode("latin-1")
    listed = CliRunner().invoke(app, ["store", "list", "--store", str(store.path)])
    assert listed.exit_code == 0
    assert "96.50" in listed.stdout
    assert BAD.task().key in listed.stderr
    document = json.loads(
        CliRunner().invoke(app, ["store", "list", "--json", "--store", str(store.path)]).stdout
    )
    assert [each["key"] for each in document["damaged"]] == [BAD.task().key]
    assert import_file(other, tmp_path / "all.parquet") == (2, 2)


def test_a_damaged_row_counts_as_missing_and_is_replaced(store: Store) -> None:
    damage(store, "stages", "ft_accuracy", "91 %")
    task = BAD.task()
    assert list(store.done([task.key, GOOD.task().key])) == [GOOD.task().key]
    assert store.claim([task.key], "me", 60) == [task.key]
    assert store.add(replace(stored.row(task, 98.0)), None, None)
    assert store.survey()[1] == []
    assert {row.ft_accuracy for row in store.rows([task.key])} == {98.0}
    assert not store.add(stored.row(task, 99.0), None, None)


@pytest.mark.parametrize("value", ["5", "{", '[{"epoch": 1}]', PASSES, b"\xff"])
def test_damaged_epochs_do_not_hide_other_data(
    store: Store, other: Store, tmp_path: Path, value: Any
) -> None:
    damage(store, "details", "epochs", value)
    report = collect(store)
    assert report.rows == 3
    assert [each.key for each in report.damaged] == [BAD.task().key]
    assert "1 row of the store" in page(report)
    assert "1 row of the store" in markdown(report)
    export(store, tmp_path / "all.parquet")
    assert import_file(other, tmp_path / "all.parquet") == (3, 3)


@pytest.mark.parametrize("value", [b"damaged", b""])
def test_damaged_parameters_do_not_hide_other_data(
    store: Store, other: Store, tmp_path: Path, value: Any
) -> None:
    damage(store, "details", "arrays", value)
    assert [each.key for each in collect(store).damaged] == [BAD.task().key]
    export(store, tmp_path / "all.parquet")
    assert import_file(other, tmp_path / "all.parquet") == (3, 3)


def test_parameters_of_another_network_are_not_drawn(store: Store) -> None:
    import safetensors.numpy

    wrong = safetensors.numpy.save({"hidden.0.theta.p": np.zeros(3)})
    damage(store, "details", "arrays", wrong)
    assert [each.key for each in collect(store).damaged] == [BAD.task().key]


def test_a_damaged_checkpoint_is_ignored(store: Store) -> None:
    """The stage starts over, so its result is still correct."""
    for column, old, new in (("arrays", "", ""), ("notes", "'1'", "'2'"), ("notes", "'{'", "''")):
        store.keep("k", Checkpoint({"n": 1}, {"a": np.full(2, 1.0)}))
        with sqlite3.connect(store.path) as db:
            if column == "arrays":  # a bit of the last number
                (blob,) = db.execute("SELECT arrays FROM checkpoints").fetchone()
                db.execute("UPDATE checkpoints SET arrays = ?", (blob[:-1] + bytes([blob[-1] ^ 1]),))
            else:
                db.execute(f"UPDATE checkpoints SET {column} = replace({column}, {old}, {new})")
        db.close()
        assert store.checkpoint("k") is None


def test_a_checkpoint_of_version_0_1_is_used(store: Store) -> None:
    import safetensors.numpy

    with sqlite3.connect(store.path) as db:
        blob = safetensors.numpy.save({"a": np.ones(2)})
        db.execute("INSERT INTO checkpoints VALUES ('k', ?, ?)", (json.dumps({"n": 1}), blob))
    db.close()
    checkpoint = store.checkpoint("k")
    assert checkpoint is not None
    assert checkpoint.notes == {"n": 1}


def test_the_chain_of_a_very_deep_cell_needs_no_recursion() -> None:
    assert len(Cell("F03", "relu", 3000, -1).task().chain) == 3000
