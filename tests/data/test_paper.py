from collections import Counter
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from ftnn.data import PaperCell, paper_best, paper_cell, paper_grid
from ftnn.errors import DataError

# Ties in the paper's table of best learning rates; another choice would be as good.
TIES = {("F01", "tanh", 1), ("F08", "relu", 10), ("F08", "tanh", 10)}


def test_the_grid_has_every_combination_exactly_once():
    cells = Counter((cell.hidden_layers, cell.function, cell.activation, cell.gamma) for cell in paper_grid())
    assert len(paper_grid()) == 1080
    assert set(cells) == {
        (layers, f"F{number:02}", activation, -gamma)
        for layers in (1, 5, 10)
        for number in range(1, 21)
        for activation in ("logistic", "relu", "tanh")
        for gamma in range(6)
    }


def test_the_best_table_has_every_network_exactly_once():
    networks = {(cell.hidden_layers, cell.function, cell.activation) for cell in paper_best()}
    assert len(paper_best()) == len(networks) == 180


def test_the_number_of_failed_cells_matches_the_paper():
    assert sum(cell.ft_accuracy is not None for cell in paper_grid()) == 785
    failed = Counter(cell.hidden_layers for cell in paper_best() if cell.gamma is None)
    assert failed == {1: 1, 5: 8, 10: 11}


@pytest.mark.parametrize("rows", [paper_grid, paper_best])
def test_both_accuracies_of_a_cell_are_missing_or_neither(rows: Any):
    for cell in rows():
        assert (cell.lwt_accuracy is None) == (cell.ft_accuracy is None)
        if cell.lwt_accuracy is not None:
            assert 41 <= cell.lwt_accuracy <= cell.ft_accuracy < 99


def test_the_best_table_matches_the_grid():
    for best in paper_best():
        tried = [
            cell
            for cell in paper_grid()
            if (cell.function, cell.activation, cell.hidden_layers)
            == (best.function, best.activation, best.hidden_layers)
        ]
        accuracies = [cell.ft_accuracy for cell in tried if cell.ft_accuracy is not None]
        if best.gamma is None:
            assert accuracies == []
        else:
            assert best in tried
            assert best.ft_accuracy == max(accuracies)
            tied = (best.function, best.activation, best.hidden_layers) in TIES
            assert (accuracies.count(max(accuracies)) > 1) == tied


def test_a_cell_is_looked_up_by_network_and_learning_rate():
    assert paper_cell("F07", "logistic", 1, 0) == PaperCell(1, "F07", "logistic", 0, 97.99, 97.99)
    assert paper_cell("F01", "relu", hidden_layers=1, gamma=-2) == PaperCell(
        1, "F01", "relu", -2, 96.30, 96.73
    )
    assert paper_cell("F11", "relu", 10, 0).ft_accuracy is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("F21", "logistic", 1, 0),
        ("f07", "logistic", 1, 0),
        ("F07", "sigmoid", 1, 0),
        ("F07", "logistic", 2, 0),
        ("F07", "logistic", 1, 1),
        ("F07", "logistic", 1, None),
    ],
)
def test_a_cell_outside_the_grid_is_refused(arguments: tuple[Any, Any, Any, Any]):
    with pytest.raises(DataError) as caught:
        paper_cell(*arguments)
    assert all(repr(part) in str(caught.value) for part in arguments)
    assert "'F01' to 'F20'" in str(caught.value)


def test_a_cell_is_immutable():
    with pytest.raises(FrozenInstanceError):
        paper_grid()[0].gamma = 3  # pyright: ignore[reportAttributeAccessIssue]
