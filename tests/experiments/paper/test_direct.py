"""Cells that are trained directly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ftnn.data import mnist
from ftnn.errors import DataError, FtnnError
from ftnn.experiments import DirectCell, Store, direct_cells
from ftnn.experiments.grid.exchange import export
from ftnn.experiments.grid.jobs import Job, Progress
from ftnn.experiments.paper.mnist.direct import COLUMNS
from ftnn.nn import Network
from ftnn.training import digest, fit, initialise
from tests.experiments.quick import import_file, run_inline

QUICK: dict[str, Any] = {"data": "mnist:200", "width": 8, "epochs": 2}
CELL = DirectCell("F12", "tanh", 2, seed=3, **QUICK)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a.sqlite")


def trained(cell: DirectCell) -> tuple[Network, Any]:
    """What `fit` makes of a cell."""
    data = mnist()
    net = Network(784, [cell.width] * cell.hidden_layers, 10, cell.function, cell.activation)
    initialise(net, cell.seed)
    test = data.test_images, data.test_labels
    history = fit(
        net, data.train_images[:200], data.train_labels[:200], epochs=cell.epochs, seed=cell.seed, test=test
    )
    return net, history


@pytest.mark.parametrize("function", ["F12", "F07", "p*gauss(q*x + r)"])
def test_a_cell_gives_the_same_result_as_fit_at_its_defaults(store: Store, function: str) -> None:
    cell = replace(CELL, function=function)
    run_inline([cell], store)
    (row,) = store.rows()
    net, history = trained(cell)
    assert (row.digest, row.ft_accuracy, row.failed) == (digest(net), history.accuracy, None)
    data = mnist()
    with torch.no_grad():
        predicted = net(torch.from_numpy(data.train_images[50_000:])).argmax(1).numpy()
    assert row.validation_accuracy == 100 * (predicted == data.train_labels[50_000:]).mean()


def test_a_cell_resumes_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftnn.experiments.paper.running.SECONDS_BETWEEN", 0.0)
    reports: list[Progress] = []
    whole = Job(CELL.task()).run(reports.append)
    resumed = Job(CELL.task(), checkpoint=reports[0].checkpoint).run(lambda progress: None)
    assert [report.epoch for report in reports] == [1, 2]
    assert (resumed.digest, resumed.ft_accuracy) == (whole.digest, whole.ft_accuracy)
    assert [epoch.loss for epoch in resumed.epochs] == [epoch.loss for epoch in whole.epochs]


def test_images_that_were_trained_on_do_not_validate(store: Store) -> None:
    run_inline([replace(CELL, data="mnist:50001", hidden_layers=1, width=1, epochs=1)], store)
    (row,) = store.rows()
    assert row.validation_accuracy is None


def test_the_papers_networks_are_the_default_grid() -> None:
    cells = direct_cells()
    assert len({*cells}) == 180
    assert all(cell.matches_paper for cell in cells)
    assert {cell.hidden_layers for cell in cells} == {1, 5, 10}


def test_keys_change_only_with_the_version_of_results() -> None:
    """Stores find results by these keys."""
    assert DirectCell("F12", "tanh", 5).task().key == "fdded5c49dbb455972ea04913b864284"


def test_a_formula_and_its_catalogue_name_have_different_keys_because_their_ranges_differ() -> None:
    named, typed = DirectCell("F12", "tanh", 5), DirectCell("p*sin(q*x + r)", "tanh", 5)
    assert named.task().key != typed.task().key


def test_csv_is_read_back(store: Store, tmp_path: Path) -> None:
    header = ",".join(COLUMNS)
    lines = [
        f"5,F12,tanh,98.10,98.02,0,12.3,,{'a' * 64}",
        f"10,F12,relu,,,1,2.0,it was not finite,{'b' * 64}",
    ]
    first, second = tmp_path / "d.csv", tmp_path / "e.csv"
    first.write_text("\n".join([header, *lines]) + "\n")
    assert import_file(store, first) == (2, 2)
    assert export(store, second, "direct") == (2, 0)
    assert second.read_text() == "\n".join(
        [f"{header},results,cpu", *(f"{line},1," for line in lines)]
    ) + "\n"  # fmt: skip


def test_csv_without_an_accuracy_or_a_reason_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f"{','.join(COLUMNS)}\n5,F12,tanh,,,0,12.3,,{'a' * 64}\n")
    with pytest.raises(DataError, match="line 2: accuracy is null"):
        import_file(store, path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"activation": "swish"}, "unknown activation 'swish'; expected one of logistic, relu, tanh"),
        ({"function": "F21"}, "F21"),
        ({"data": "cifar"}, "unknown data 'cifar'"),
        ({"epochs": 0}, "epochs is 0; expected"),
        ({"hidden_layers": True}, "hidden_layers is True; expected"),
    ],
)
def test_a_wrong_value_is_quoted(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(FtnnError, match=message):
        replace(CELL, **wrong)
