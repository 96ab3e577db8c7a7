"""Cells of MNIST grids, and their stages."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from ftnn.errors import FormulaError, FtnnError
from ftnn.experiments import Cell, mnist_cells
from ftnn.experiments.grid.registry import KINDS
from ftnn.experiments.grid.task import with_chains
from ftnn.experiments.paper.mnist.cells import ACTIVATIONS, Layerwise, images
from ftnn.experiments.paper.mnist.functions import FUNCTIONS, function_of, with_ranges
from ftnn.formula import catalogue

CELL = Cell("F12", "tanh", 5, -3)
ALL_IMAGES = replace(CELL, data="mnist")


class TestKeys:
    def test_keys_change_only_with_the_version_of_results(self) -> None:
        """Stores find results by these keys."""
        assert (KINDS["lwt"].results, KINDS["ft"].results) == (3, 4)
        assert ALL_IMAGES.task().key == "3fe6faaf8d8d4b9a12f03defe658b4a1"
        assert Layerwise(ALL_IMAGES).key == "15d5c3eead3e54bf8a97128b08162e0e"

    def test_keys_of_earlier_versions_of_results_stay(self) -> None:
        assert ALL_IMAGES.task().at(3).key == "ce463aad3f19ed3ef908445a13be1406"
        assert Layerwise(ALL_IMAGES).at(2).key == "38812d2becef721030b2db6894c3b1d9"

    @pytest.mark.parametrize(
        "other",
        [
            {"function": "F13"},
            {"activation": "relu"},
            {"hidden_layers": 4},
            {"gamma": -4},
            {"seed": 1},
            {"data": "mnist:100"},
            {"data": "mnist"},
            {"epochs": (15, 14)},
            {"width": 64},
            {"batch_size": 8},
        ],
    )
    def test_every_setting_changes_the_key(self, other: dict[str, object]) -> None:
        changed = replace(CELL, **other)  # pyright: ignore[reportArgumentType]
        assert changed.task().key != CELL.task().key

    def test_keys_do_not_depend_on_how_a_function_is_written(self) -> None:
        written = replace(CELL, function="p*sin(q*x + r) where q in [-10, 10] and r in [-10, 10]")
        assert written.task().key == CELL.task().key
        assert replace(CELL, function="p*sin(q*x + r)").task().key != CELL.task().key

    def test_keys_of_layer_wise_stages_do_not_depend_on_later_stages(self) -> None:
        other = replace(CELL, epochs=(15, 3))
        assert Layerwise(other).key == Layerwise(CELL).key
        assert Layerwise(replace(CELL, epochs=(14, 15))).key != Layerwise(CELL).key


def test_cells_that_differ_in_depth_share_stages() -> None:
    tasks = with_chains(replace(CELL, hidden_layers=depth).task() for depth in (1, 5, 10))
    assert [task.title for task in tasks.values()] == [
        *["LWT 1", "FT of 1"],
        *[f"LWT {layer}" for layer in range(2, 6)],
        "FT of 5",
        *[f"LWT {layer}" for layer in range(6, 11)],
        "FT of 10",
    ]


class TestFunctions:
    def test_a_formula_can_have_ranges(self) -> None:
        function = function_of("p*tan(q*x + r) where q in [-10, 10] and r in [0, 1]")
        assert function.init == {"p": (-0.1, 0.1), "q": (-10, 10), "r": (0, 1)}
        assert function.formula == "p*tan(q*x + r)"

    def test_a_catalogue_function_can_have_other_ranges(self) -> None:
        function = function_of("F08 where p in [0, 1]")
        assert function.init["p"] == (0, 1)
        assert function.choices == catalogue["F08"].choices

    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("p*tan(q*x)", "p*tan(q*x) where p in [-0.1, 0.1] and q in [-0.1, 0.1]"),
            ("q*x + p where p in [0,1e-3]", "q*x + p where q in [-0.1, 0.1] and p in [0, 0.001]"),
            ("p*x where p in [-3.14159265, 3]", "p*x where p in [-3.14159265, 3]"),
            ("F08 where q in [0, 1]", "F08 where p in [-0.1, 0.1] and q in [0, 1]"),
            ("F12 where q in [-10, 10]", "F12"),
            ("F12", "F12"),
        ],
    )
    def test_there_is_one_way_to_write_ranges(self, text: str, written: str) -> None:
        assert with_ranges(text) == with_ranges(written) == written
        assert function_of(written) == function_of(text)
        assert replace(CELL, function=written).task().key == replace(CELL, function=text).task().key

    @pytest.mark.parametrize(
        "text", ["p*x where", "p*x where p", "p*x where p in [1]", "p*x where p in [a, 1]"]
    )
    def test_invalid_ranges_are_refused(self, text: str) -> None:
        with pytest.raises(FtnnError):
            function_of(text)

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(FormulaError, match="F99"):
            mnist_cells(functions=["F99"])


class TestGrids:
    def test_the_complete_grid_has_1080_cells(self) -> None:
        assert len(mnist_cells(gammas="all")) == 1080

    def test_best_means_one_rate_per_cell_or_all_if_the_paper_failed(self) -> None:
        cells = mnist_cells(gammas="best")
        assert len(cells) == 160 + 20 * 6
        assert Cell("F07", "logistic", 1, 0) in cells
        assert {cell.gamma for cell in cells if (cell.function, cell.activation) == ("F11", "relu")} == set(
            range(0, -6, -1)
        )

    def test_other_ranges_do_not_change_the_best_rate(self) -> None:
        name = "F07 where p in [0, 2]"
        cells = mnist_cells(layers=[1], functions=[name])
        assert {(cell.activation, cell.gamma) for cell in cells} == {
            ("logistic", 0),
            ("relu", -3),
            ("tanh", -2),
        }
        assert {cell.function for cell in cells} == {name}

    def test_cells_are_in_the_order_of_chains(self) -> None:
        """All depths of a chain, then the next: an interrupted run leaves whole chains."""
        cells = mnist_cells([1, 5, 10], ["p*tan(q*x)", "F12"], ["relu"], "all")
        chains = [(cell.function, cell.gamma) for cell in cells]
        assert chains == [each for each in dict.fromkeys(chains) for _ in "abc"]
        assert [cell.hidden_layers for cell in cells] == [1, 5, 10] * 12

    def test_chains_with_a_best_cell_come_first_then_those_that_the_paper_could_not_train(self) -> None:
        """F03 is best at -2 with 1 layer, at -5 with 5, and fails with 10; F12 is best at -3, -4 and -4."""
        cells = mnist_cells([1, 5, 10], ["F03", "F12"], ["relu"], "all")
        assert [(cell.function, int(cell.gamma)) for cell in cells[::3]] == [
            *(("F03", gamma) for gamma in (-2, -5)),
            *(("F12", gamma) for gamma in (-3, -4)),
            *(("F03", gamma) for gamma in (0, -1, -3, -4)),
            *(("F12", gamma) for gamma in (0, -1, -2, -5)),
        ]
        best = mnist_cells([1, 5, 10], ["F03"], ["relu"])
        assert [(cell.hidden_layers, int(cell.gamma)) for cell in best] == [
            *((1, -2), (10, -2), (5, -5), (10, -5)),
            *((10, gamma) for gamma in (0, -1, -3, -4)),
        ]

    def test_duplicate_values_count_once(self) -> None:
        assert mnist_cells([1, 1], ["F03", "F03"], ["relu"], [0, 0.0], [0, 0]) == [Cell("F03", "relu", 1, 0)]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"layers": [0]}, "0 hidden layers: expected 1 or more"),
            ({"layers": "1,5"}, "layers is '1,5'; expected a list of values"),
            ({"layers": ["1"]}, "hidden_layers is '1'; expected a whole number"),
            ({"functions": "F03"}, "functions is 'F03'; expected a list of values"),
            ({"gammas": "x"}, 'gammas is \'x\'; expected "best", "all", or numbers'),
            ({"gammas": [float("nan")]}, "gamma is nan; expected a finite number"),
            (
                {"activations": ["sigmoid"]},
                "unknown activation 'sigmoid'; did you mean 'logistic'?",
            ),
            ({"activations": ["min(relu(x), y)"], "gammas": [0]}, "'y' is unknown"),
            ({"seeds": [-1]}, "seed=-1"),
            ({"functions": ["p*tan(x)"]}, "set gammas to all"),
            ({"layers": [2]}, "set gammas to all"),
            ({"data": "cifar"}, "mnist:N"),
        ],
    )
    def test_invalid_values_are_quoted(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(FtnnError) as caught:
            mnist_cells(**arguments)  # pyright: ignore[reportArgumentType]
        assert message in str(caught.value)


def test_only_the_papers_settings_match_the_paper() -> None:
    assert CELL.matches_paper
    assert replace(CELL, function="p*tan(x)", seed=9).matches_paper
    assert not replace(CELL, width=64).matches_paper
    assert not replace(CELL, data="mnist:100").matches_paper
    assert not ALL_IMAGES.matches_paper


def test_the_paper_may_have_used_all_images() -> None:
    assert CELL.is_comparable
    assert ALL_IMAGES.is_comparable
    assert not replace(CELL, data="mnist:100").is_comparable
    assert not replace(ALL_IMAGES, width=64).is_comparable
    assert ALL_IMAGES.setting == "60,000 images"


def test_an_activation_can_be_a_formula() -> None:
    """The ReLU of the paper's platform ends at 20."""
    limited = replace(CELL, activation="relu20")
    assert not limited.matches_paper
    assert limited.setting == "activation relu20"
    assert replace(CELL, activation="min(relu(x), 20)").setting == "activation min(relu(x), 20)"
    assert limited.task().key != replace(CELL, activation="relu").task().key


def test_all_images_have_one_name() -> None:
    assert replace(CELL, data="mnist:60000") == ALL_IMAGES


@pytest.mark.parametrize(("data", "count"), [("mnist", 60_000), ("mnist:100", 100)])
def test_the_number_of_images_is_part_of_the_data_name(data: str, count: int) -> None:
    assert images(data) == count


def test_the_papers_functions_are_the_catalogue_without_memory() -> None:
    assert len(FUNCTIONS) == 20


def test_the_activations_are_the_papers_which_networks_know_by_name() -> None:
    from ftnn.nn import _activations

    assert get_args(_activations.Activation) == ACTIVATIONS
    assert set(ACTIVATIONS) < set(_activations.NAMES)
