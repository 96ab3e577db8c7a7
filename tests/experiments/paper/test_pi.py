"""Curves of π as cells and tasks; `grid/test_run.py` runs them."""

from __future__ import annotations

import pytest

from ftnn.errors import FtnnError
from ftnn.experiments import PiCell, pi_cells


def test_the_default_is_the_papers_twelve_curves() -> None:
    assert len(pi_cells()) == 12
    assert all(cell.matches_paper for cell in pi_cells(seeds=[1]))
    assert not pi_cells(hidden=[4], pairs=[5], epochs=3)[0].matches_paper


def test_the_key_changes_only_with_the_version_of_results() -> None:
    task = PiCell(128, 200).task()
    assert task.key == "f85134095054a9c1ccb153ac0f0a69ab"
    assert task.at(1).key == "5b60a4a850b9b7156f341370d1bbbc48"


def test_both_states_match_the_paper_which_does_not_say() -> None:
    cells = pi_cells(states=["carried", "reset"])
    assert len(cells) == 24
    assert all(cell.matches_paper for cell in cells)
    assert len({cell.task().key for cell in cells}) == 24
    with pytest.raises(FtnnError, match="unknown state 'kept'; expected reset or carried"):
        pi_cells(states=["kept"])


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"pairs": 0}, {"epochs": 0}, {"seed": -1}, {"gamma": None}])
def test_invalid_values_are_quoted(wrong: dict[str, object]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(FtnnError, match=f"{name} is {value}; expected"):
        PiCell(**{"hidden": 4, "pairs": 5, **wrong})  # pyright: ignore[reportArgumentType]


def test_a_string_is_not_accepted_as_a_list() -> None:
    with pytest.raises(FtnnError, match="hidden is '128,256'; expected a list of values"):
        pi_cells(hidden="128,256")  # pyright: ignore[reportArgumentType]
