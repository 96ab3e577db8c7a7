"""Cells and stages as data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftnn.errors import FormulaError, FtnnError
from ftnn.experiments import Cell, PiCell, mnist_cells, pi_cells
from ftnn.experiments._grids import FUNCTIONS, split
from ftnn.experiments._tasks import (
    ACTIVATIONS,
    RESULTS,
    Task,
    as_text,
    function_of,
    images,
    task_of,
    with_chains,
)
from ftnn.formula import catalogue

CELL = Cell("F12", "tanh", 5, -3)


class TestKeys:
    def test_change_only_with_the_version_of_results(self) -> None:
        """Results in stores are found again by these."""
        assert RESULTS == {"lwt": 2, "ft": 3, "pi": 1, "conic": 1}
        assert CELL.task().key == "ce463aad3f19ed3ef908445a13be1406"
        assert Task("lwt", CELL).key == "38812d2becef721030b2db6894c3b1d9"
        assert PiCell(128, 200).task().key == "5b60a4a850b9b7156f341370d1bbbc48"

    @pytest.mark.parametrize(
        "other",
        [
            {"function": "F13"},
            {"activation": "relu"},
            {"hidden_layers": 4},
            {"gamma": -4},
            {"seed": 1},
            {"data": "mnist:100"},
            {"epochs": (15, 14)},
            {"width": 64},
            {"batch_size": 8},
        ],
    )
    def test_tell_cells_apart(self, other: dict[str, object]) -> None:
        changed = replace(CELL, **other)  # pyright: ignore[reportArgumentType]
        assert changed.task().key != CELL.task().key

    def test_do_not_depend_on_how_a_function_is_written(self) -> None:
        written = replace(CELL, function="p*sin(q*x + r) where q in [-10, 10] and r in [-10, 10]")
        assert written.task().key == CELL.task().key
        assert replace(CELL, function="p*sin(q*x + r)").task().key != CELL.task().key

    def test_of_layer_wise_training_do_not_depend_on_what_follows(self) -> None:
        other = replace(CELL, epochs=(15, 3))
        assert Task("lwt", other).key == Task("lwt", CELL).key
        assert Task("lwt", replace(CELL, epochs=(14, 15))).key != Task("lwt", CELL).key


def test_cells_of_one_chain_share_their_stages() -> None:
    tasks = with_chains(replace(CELL, hidden_layers=depth).task() for depth in (1, 5, 10))
    assert [task.title for task in tasks.values()] == [
        *["LWT 1", "FT of 1"],
        *[f"LWT {layer}" for layer in range(2, 6)],
        "FT of 5",
        *[f"LWT {layer}" for layer in range(6, 11)],
        "FT of 10",
    ]


@pytest.mark.parametrize("task", [CELL.task(), Task("lwt", CELL), PiCell(16, 20, 3, epochs=7).task()])
def test_a_task_survives_being_written(task: Task) -> None:
    assert task_of(as_text(task)) == task
    assert task_of(as_text(task)).key == task.key


class TestFunctions:
    def test_with_ranges(self) -> None:
        made = function_of("p*tan(q*x + r) where q in [-10, 10] and r in [0, 1]")
        assert made.init == {"p": (-0.1, 0.1), "q": (-10, 10), "r": (0, 1)}
        assert made.formula == "p*tan(q*x + r)"

    def test_of_the_catalogue_with_other_ranges(self) -> None:
        made = function_of("F08 where p in [0, 1]")
        assert made.init["p"] == (0, 1)
        assert made.choices == catalogue["F08"].choices

    @pytest.mark.parametrize(
        "text", ["p*x where", "p*x where p", "p*x where p in [1]", "p*x where p in [a, 1]"]
    )
    def test_without_sense_are_refused(self, text: str) -> None:
        with pytest.raises(FtnnError):
            function_of(text)

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(FormulaError, match="F99"):
            mnist_cells(functions=["F99"])


class TestGrids:
    def test_the_whole_grid_has_1080_cells(self) -> None:
        assert len(mnist_cells(gammas="all")) == 1080

    def test_the_best_are_one_a_cell_and_all_where_the_paper_failed(self) -> None:
        cells = mnist_cells(gammas="best")
        assert len(cells) == 160 + 20 * 6
        assert Cell("F07", "logistic", 1, 0) in cells
        assert {cell.gamma for cell in cells if (cell.function, cell.activation) == ("F11", "relu")} == set(
            range(0, -6, -1)
        )

    def test_other_ranges_do_not_change_the_best(self) -> None:
        name = "F07 where p in [0, 2]"
        cells = mnist_cells(layers="1", functions=[name])
        assert {(cell.activation, cell.gamma) for cell in cells} == {
            ("logistic", 0),
            ("relu", -3),
            ("tanh", -2),
        }
        assert {cell.function for cell in cells} == {name}

    def test_the_twelve_curves(self) -> None:
        assert len(pi_cells()) == 12

    def test_functions_are_told_apart_by_commas_outside_brackets(self) -> None:
        assert split("F01, p*max(x, q) where q in [0, 1],F02") == [
            "F01",
            "p*max(x, q) where q in [0, 1]",
            "F02",
        ]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"layers": "0"}, "--layers 0: '0' is not allowed; allowed are whole numbers of 1 or more"),
            ({"layers": "1,b"}, "'b'"),
            ({"gammas": "x"}, "best or all"),
            ({"gammas": "nan"}, "'nan'"),
            ({"activations": "sigmoid"}, "expected logistic, relu, tanh"),
            ({"seeds": "-1"}, "0 or more"),
            ({"layers": ","}, "names nothing"),
            ({"functions": ["p*tan(x)"]}, "--gammas all"),
            ({"layers": "2"}, "--gammas all"),
            ({"data": "cifar"}, "mnist:N"),
        ],
    )
    def test_bad_input_is_quoted(self, given: dict[str, object], said: str) -> None:
        with pytest.raises(FtnnError) as caught:
            mnist_cells(**given)  # pyright: ignore[reportArgumentType]
        assert said in str(caught.value)


def test_only_the_papers_settings_are_the_papers() -> None:
    assert CELL.is_papers
    assert replace(CELL, function="p*tan(x)", seed=9).is_papers
    assert not replace(CELL, width=64).is_papers
    assert not replace(CELL, data="mnist:100").is_papers


@pytest.mark.parametrize(("data", "count"), [("mnist", None), ("mnist:100", 100)])
def test_data_by_name(data: str, count: int | None) -> None:
    assert images(data) == count


def test_the_catalogues_functions_are_the_papers() -> None:
    assert len(FUNCTIONS) == 20


def test_the_activations_are_those_of_networks() -> None:
    from ftnn.nn import _network

    assert tuple(_network.ACTIVATIONS) == ACTIVATIONS
