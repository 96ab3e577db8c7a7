"""Conic hypersurfaces: the paper's statements about F19 and F20."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ftnn.cli import app
from ftnn.errors import FtnnError
from ftnn.experiments import ConicCell, Store, conic_cells
from ftnn.experiments.grid.registry import task_from_text, task_to_text
from ftnn.experiments.paper.conic.cells import run_conic
from ftnn.experiments.paper.conic.learned import decide, learned_quadric, points, rays_again, unit_sums
from ftnn.experiments.paper.conic.problems import PROBLEMS, Array, Quadric
from ftnn.experiments.paper.conic.rays import Units, check_rays, draw_units
from ftnn.experiments.paper.conic.solve import solve
from ftnn.experiments.report.conic import conic_results, write_conic
from ftnn.nn import Network


def test_a_quadric_contains_the_points_of_an_ellipse_or_hyperbola():
    ellipse = Quadric((1.0, 2.0), (3.0, 0.5), (1.0, 1.0))
    t = np.linspace(0, 6, 50)
    on = np.stack([1 + 3 * np.cos(t), 2 + 0.5 * np.sin(t)], 1)
    assert ellipse.value(on) == pytest.approx(1)
    centre = np.array([1.0, 2.0])
    assert ellipse.contains(centre + 0.99 * (on - centre)).all()
    assert not ellipse.contains(centre + 1.01 * (on - centre)).any()
    hyperbola = Quadric((0.0, 0.0), (1.0, 2.0), (1.0, -1.0))
    branch = np.stack([np.cosh(t - 3), 2 * np.sinh(t - 3)], 1)
    assert hyperbola.value(branch) == pytest.approx(1)
    assert hyperbola.contains(np.array([[0.0, 1e9]])).all()


def test_the_papers_network_classifies_all_points_correctly():
    problem, solved = PROBLEMS["three-ellipses"], solve("three-ellipses", 3)
    assert solved.ft_accuracy == 100.0
    where = points(problem, 9, "train").astype(np.float64)
    inside = decide(problem, solved.arrays, where) > 0
    assert np.array_equal(inside, problem.truth(where))
    assert 0.2 < inside.mean() < 0.6


@pytest.mark.parametrize("name", ["learn-ellipse", "learn-hyperbola"])
def test_one_unit_finds_centre_and_axes_from_points(name: str):
    problem, solved = PROBLEMS[name], solve(name, 1)
    assert solved.failed is None
    assert solved.ft_accuracy > 99
    learned, (true,) = learned_quadric(problem, solved.arrays), problem.regions
    assert learned is not None
    assert learned.signs == true.signs
    assert learned.centre == pytest.approx(true.centre, abs=0.05)
    assert learned.axes == pytest.approx(true.axes, abs=0.05)
    # Its boundary is where the network's answer turns.
    t = np.linspace(-1, 1, 20)
    curve = [np.cos(t), np.sin(t)] if name == "learn-ellipse" else [np.cosh(t), np.sinh(t)]
    on = np.array(learned.centre) + np.stack(curve, 1) * np.array(learned.axes)
    near = np.array(learned.centre) + np.stack(curve, 1) * np.array(learned.axes) * 0.999
    beyond = np.array(learned.centre) + np.stack(curve, 1) * np.array(learned.axes) * 1.001
    assert (decide(problem, solved.arrays, near) > 0).all()
    assert (decide(problem, solved.arrays, beyond) < 0).all()
    assert decide(problem, solved.arrays, on) == pytest.approx(0, abs=1e-5)


def test_without_signs_a_hyperbola_cannot_be_learned():
    assert solve("hyperbola-without-signs", 0).ft_accuracy < 92 < solve("learn-hyperbola", 0).ft_accuracy


def test_drawn_answers_match_the_network():
    problem, solved = PROBLEMS["learn-three-ellipses"], solve("learn-three-ellipses", 0)
    assert solved.ft_accuracy > 93
    net = Network(2, [problem.units], 2, problem.function, "logistic")
    net.load_state_dict({name: torch.from_numpy(array) for name, array in solved.arrays.items()})
    where = points(problem, 0, "test")
    with torch.no_grad():
        answers = net(torch.from_numpy(where)).numpy()
    drawn = decide(problem, solved.arrays, where.astype(np.float64))
    assert drawn == pytest.approx(answers[:, 1] - answers[:, 0], abs=1e-3)
    assert 100 * np.mean((answers[:, 1] > answers[:, 0]) == problem.truth(where)) == pytest.approx(
        solved.ft_accuracy
    )


# --- more dimensions ---


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dimension", [3, 5])
def test_f19_bounds_closed_regions_and_f20_open_ones(dimension: int, seed: int):
    for name in (f"closed-{dimension}", f"open-{dimension}"):
        problem, solved = PROBLEMS[name], solve(name, seed)
        assert problem.dimension == dimension
        assert (solved.ft_accuracy, solved.failed) == (100.0, None)
        check = rays_again(problem, solved.arrays, seed)
        assert check.as_derived == check.rays == 8 * 500
        assert (check.staying == 0) == (name[0] == "c")
        assert check.leaving > 0


def test_a_wrong_claim_is_detected():
    problem = PROBLEMS["closed-3"]
    units = draw_units(problem, np.random.default_rng(0))

    def fault(meant: Units, computed: Units, closed: bool) -> str | None:
        def sums(where: Array) -> Array:
            signals = computed.u * computed.p**2 * (where[:, :, None] - computed.q) ** 2
            return signals.sum(1) + computed.bias

        return check_rays(meant, sums, np.random.default_rng(1), 50).fault(closed)

    assert fault(units, units, True) is None
    assert "all 400 rays leave" in (fault(units, units, False) or "")
    flat = replace(units, p=units.p * [[0.0], [1.0], [1.0]])  # p = 0: a cylinder is not closed
    assert "never leave" in (fault(flat, flat, True) or "")
    assert "differ from the derivation" in (fault(units, replace(units, bias=units.bias * 1.01), True) or "")
    mixed = replace(units, u=units.u * [[1.0], [1.0], [-1.0]])
    assert fault(mixed, mixed, False) is None
    assert "never leave" in (fault(mixed, mixed, True) or "")


def test_unit_sums_follow_the_papers_formula():
    problem = PROBLEMS["three-ellipses"]
    arrays = solve("three-ellipses", 0).arrays
    x = np.array([[1.0, 2.0]])
    by_hand = [0.5**2 * 1 + 1.41**2 * 1 - 1, 1.33**2 * 1.5**2 + 0.67**2 * 0 - 1, 4 + 4 - 1]
    assert unit_sums(problem, arrays, x)[0] == pytest.approx(by_hand)


# --- tasks, store, command ---


def test_each_problem_and_seed_has_its_own_key():
    task = ConicCell("learn-ellipse", 2).task()
    assert task_from_text(task_to_text(task)) == task
    keys = {ConicCell(name, seed).task().key for name in PROBLEMS for seed in (0, 1)}
    assert len(keys) == 2 * len(PROBLEMS)


def test_invalid_problems_and_seeds_are_refused():
    with pytest.raises(FtnnError, match=r"unknown conic problem 'parabola'; expected three-ellipses, learn"):
        conic_cells(["parabola"])
    with pytest.raises(FtnnError, match=r"seed is -1; expected a whole number of 0 or more"):
        conic_cells(seeds=[0, -1])
    with pytest.raises(FtnnError, match=r"problems is 'closed-3'; expected a list of values"):
        conic_cells("closed-3")


def test_solved_problems_are_not_run_again(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        first = run_conic(store, conic_cells(["learn-ellipse", "closed-3"]))
        assert run_conic(store, conic_cells(["closed-3", "learn-ellipse"])) == first
        assert len(store.rows()) == 2
        assert [result.problem for result in conic_results(store.parameters, first)] == [
            "learn-ellipse",
            "closed-3",
        ]
        assert first[0].digest == solve("learn-ellipse", 0).digest


def test_the_command_stores_results_and_writes_pictures(tmp_path: Path):
    command = ["reproduce", "conic", "--problems", "three-ellipses,learn-hyperbola,open-3"]
    command += ["--store", str(tmp_path / "s.sqlite"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {each["problem"]: each["failed"] for each in document["conic"]} == {
        "three-ellipses": None,
        "learn-hyperbola": None,
        "open-3": None,
    }
    names = {Path(name).name for name in document["files"]}
    assert names == {"three-ellipses.svg", "learn-hyperbola.svg", "conic.json"}
    assert json.loads((tmp_path / "out" / "conic.json").read_text("utf-8")) == document["conic"]
    drawn = ET.parse(tmp_path / "out" / "three-ellipses.svg").getroot()
    kinds = [each.get("class") for each in drawn.iter("{http://www.w3.org/2000/svg}path")]
    assert [kind for kind in kinds if kind != "grid"] == ["region", "unit u0", "unit u1", "unit u2"]
    answers = [
        each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text") if each.get("class") == "answer"
    ]
    assert answers == ["1", "1", "1", "1", "0", "0", "0"]
    assert "learn-hyperbola" in CliRunner().invoke(app, command).stdout


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(FtnnError, match=r"cannot write to .*file/out"):
        write_conic(store.parameters, [], tmp_path / "file" / "out")
