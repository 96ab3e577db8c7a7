"""Grids: shared prefixes, failed chains, lost workers, and runs that are cut off."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ftnn.errors import FtnnError
from ftnn.experiments import Cell, LocalExecutor, PiCell, Store, run
from ftnn.experiments.grid.jobs import Broken, Event, Job, Lost, Progress
from ftnn.experiments.grid.task import AnyTask
from ftnn.experiments.paper.mnist.cells import Layerwise
from ftnn.experiments.paper.mnist.training import network_of, problem_of
from ftnn.training import digest, fit
from tests.experiments.quick import Inline, Quiet, cell, digests, run_inline


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a.sqlite")


def by_fit(cell: Cell) -> tuple[str, float | None, float | None, str | None]:
    """What `fit` makes of a cell, in one go."""
    net, problem = network_of(cell), problem_of(cell.data)
    history = fit(
        net,
        problem.x,
        problem.y,
        gamma=cell.gamma,
        epochs=cell.epochs,
        batch_size=cell.batch_size,
        seed=cell.seed,
        test=(problem.test_x, problem.test_y),
    )
    return digest(net), history.lwt_accuracy, history.ft_accuracy, history.failed


class TestChains:
    def test_each_stage_is_run_once(self, store: Store) -> None:
        cells = [cell(layers=depth) for depth in (3, 1, 2)]
        executor = run_inline(cells, store)
        assert sorted(task.title for task in executor.ran) == [
            *["FT of 1", "FT of 2", "FT of 3"],
            *["LWT 1", "LWT 2", "LWT 3"],
        ]
        assert len(store.rows()) == 6

    @pytest.mark.parametrize("function", ["F03", "F12", "F08"])
    def test_every_cell_is_what_fit_makes_of_it(self, store: Store, function: str) -> None:
        cells = [cell(function, depth, gamma=-1, epochs=(3, 3)) for depth in (1, 3)]
        run_inline(cells, store)
        for each in cells:
            (row,) = store.rows([each.task().key])
            assert (row.digest, row.lwt_accuracy, row.ft_accuracy, row.failed) == by_fit(each)

    def test_what_is_done_is_not_run_again(self, store: Store) -> None:
        run_inline([cell(layers=2)], store)
        assert run_inline([cell(layers=1), cell(layers=2)], store).ran == [cell(layers=1).task()]

    def test_a_failure_ends_the_chain_and_each_cell_says_why(self, store: Store) -> None:
        """exp overflows at once with such a rate."""
        broken = [cell("p*exp(q*x + r) where q in [50, 90]", depth, gamma=20) for depth in (1, 2, 3)]
        executor = run_inline(broken, store)
        assert "LWT 2" not in [task.title for task in executor.ran]
        for each in broken:
            (row,) = store.rows([each.task().key])
            assert row.failed is not None
            assert "layer-wise training, hidden layer 1, epoch 1" in row.failed
            assert (row.digest, row.failed) == (by_fit(each)[0], by_fit(each)[3])

    def test_a_cell_that_ends_at_chance_is_failed(self, store: Store) -> None:
        weak = cell(gamma=-60)
        run_inline([weak], store)
        (row,) = store.rows([weak.task().key])
        assert row.failed is not None
        assert "no better than chance" in row.failed

    def test_stages_without_parameters_are_run_where_they_are_needed(self, store: Store) -> None:
        run_inline([cell(layers=1)], store)
        first = Layerwise(cell(layers=1))
        store._db.execute("UPDATE details SET arrays = NULL WHERE key = ?", (first.key,))
        assert first in run_inline([cell(layers=2)], store).ran
        (row,) = store.rows([cell(layers=2).task().key])
        assert row.digest == by_fit(cell(layers=2))[0]


class TestCheckpoints:
    def checkpoints(self, task: AnyTask, job: Job, monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
        monkeypatch.setattr("ftnn.experiments.paper.running.SECONDS_BETWEEN", 0)
        told: list[Progress] = []
        job.run(told.append)
        return told

    @pytest.mark.parametrize("kind", ["lwt", "ft"])
    def test_a_stage_goes_on_from_any_epoch(
        self, store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = cell("F12", 2, epochs=(4, 4))
        run_inline([chosen], store)
        task = chosen.task() if kind == "ft" else Layerwise(chosen)
        before = tuple(kept for part in task.chain if (kept := store.kept(part)) is not None)
        (row,) = store.rows([task.key])
        told = self.checkpoints(task, Job(task, before), monkeypatch)
        assert len(told) >= 2
        for progress in told:
            store.keep("k", progress.checkpoint)  # as it comes back from the store
            again = Job(task, before, store.checkpoint("k")).run(lambda _: None)
            assert again.digest == row.digest
            assert [e.loss for e in again.epochs] == [e.loss for e in store.epochs(task.key)]
            assert (again.lwt_accuracy, again.ft_accuracy) == (row.lwt_accuracy, row.ft_accuracy)

    def test_a_curve_goes_on_from_any_epoch(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        task = PiCell(8, 12, epochs=9).task()
        whole = Job(task).run(lambda _: None)
        assert len(whole.epochs) == 9
        for progress in self.checkpoints(task, Job(task), monkeypatch):
            store.keep("k", progress.checkpoint)
            again = Job(task, (), store.checkpoint("k")).run(lambda _: None)
            assert again.digest == whole.digest
            assert [e.loss for e in again.epochs] == [e.loss for e in whole.epochs]
            assert [e.epoch for e in again.epochs] == list(range(1, 10))


class TestClaims:
    def test_of_a_process_that_was_killed_are_free_at_once(self, store: Store) -> None:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        task = cell().task()
        store.claim([part.key for part in (*task.chain, task)], f"{socket.gethostname()} {gone.pid} x", 1e9)
        assert run_inline([cell()], store).ran == [*task.chain, task]

    def test_of_the_living_and_of_other_machines_hold(self, store: Store) -> None:
        alive, elsewhere = f"{socket.gethostname()} {os.getppid()} x", "another-machine 1 x"
        store.claim(["a"], alive, 1e9)
        store.claim(["b"], elsewhere, 1e9)
        run_inline([cell()], store)
        assert sorted(store.owners()) == sorted([alive, elsewhere])


class _Clumsy(Inline):
    """Loses each stage the first time, after its first epoch."""

    def __init__(self, times: int = 1):
        super().__init__()
        self.times = times
        self.lost: dict[str, int] = {}
        self.resumed = 0

    def events(self, seconds: float) -> list[Event]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        told: list[Event] = []
        done = job.run(told.append)
        self.resumed += job.checkpoint is not None
        if self.lost.get(job.task.key, 0) < self.times:
            self.lost[job.task.key] = self.lost.get(job.task.key, 0) + 1
            return [*told[:1], Lost(job.task.key, "gone")]
        return [done, done]  # a result that comes twice is taken once


class TestLostWorkers:
    def test_their_stages_are_run_again_from_their_checkpoints(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftnn.experiments.paper.running.SECONDS_BETWEEN", 0)
        executor, watcher = _Clumsy(), Quiet()
        run([cell(layers=2).task()], store, executor, watcher)
        assert len(watcher.lost_tasks) == 3
        assert executor.resumed == 3
        assert executor.closed
        with Store(tmp_path / "b.sqlite") as other:
            run_inline([cell(layers=2)], other)
            assert digests(store) == digests(other)

    def test_are_not_lost_for_ever(self, store: Store) -> None:
        executor = _Clumsy(times=99)
        with pytest.raises(FtnnError, match="given up: its worker was lost 3 times: gone"):
            run([cell().task()], store, executor, Quiet())
        assert executor.closed

    def test_an_error_of_ours_is_shown(self, store: Store) -> None:
        class Faulty(Inline):
            def events(self, seconds: float) -> list[Event]:
                return [Broken(self.jobs[0].task.key, "ValueError: oh")]

        with pytest.raises(FtnnError, match="could not be run: ValueError: oh"):
            run([cell().task()], store, Faulty(), Quiet())
        # Nobody else has to wait for what it had claimed.
        assert run_inline([cell()], store).ran


class TestProcesses:
    @pytest.mark.slow
    def test_two_give_what_one_gives(self, store: Store, tmp_path: Path) -> None:
        tasks = [cell(name, depth).task() for name in ("F03", "F12") for depth in (1, 2)]
        run(tasks, store, LocalExecutor(2), Quiet())
        with Store(tmp_path / "b.sqlite") as other:
            run_inline([cell(name, depth) for name in ("F03", "F12") for depth in (1, 2)], other)
            assert digests(store) == digests(other)
            for key in digests(store):
                mine, its = store.arrays(key), other.arrays(key)
                assert mine is not None
                assert its is not None
                assert mine.keys() == its.keys()
                assert all(np.array_equal(mine[name], its[name]) for name in mine)

    @pytest.mark.slow
    def test_one_that_is_killed_is_replaced(self, store: Store) -> None:
        watcher = Quiet()
        executor = LocalExecutor(1)

        class Killing(Quiet):
            def progress(self, task: AnyTask, progress: Progress) -> None:
                if not watcher.lost_tasks:
                    os.kill(executor._workers[0].process.pid or 0, signal.SIGKILL)

            def lost(self, task: AnyTask, reason: str) -> None:
                assert "SIGKILL" in reason
                watcher.lost(task, reason)

        chosen = PiCell(64, 100, epochs=1500)
        run([chosen.task()], store, executor, Killing())
        assert watcher.lost_tasks
        (row,) = store.rows()
        assert row.digest == Job(chosen.task()).run(lambda _: None).digest

    def test_there_is_at_least_one(self) -> None:
        with pytest.raises(FtnnError, match="--jobs 0 must be 1 or more"):
            LocalExecutor(0)


_COMMAND = (
    *("reproduce", "mnist", "--layers", "1,2,3", "--functions", "F03,F12", "--activations", "logistic"),
    *("--gammas=-2", "--data", "mnist:3000", "--width", "24", "--epochs", "4", "--fine-tuning-epochs", "4"),
)


def ftnn(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ftnn", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Tests that run in the background of a shell have Ctrl-C turned off, and pass that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _progressed(path: Path) -> tuple[int, str]:
    """How many rows there are, and what is in hand."""
    if not path.exists():
        return 0, ""
    with Store(path) as store:
        return len(store.rows()), str(
            store._db.all("SELECT key, length(notes) FROM checkpoints ORDER BY key")
        )


@pytest.mark.slow
def test_a_command_that_is_killed_three_times_ends_with_the_same_digests(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    killed = tmp_path / "a" / "ftnn.sqlite"
    for _ in range(3):
        before = _progressed(killed)
        process = ftnn(*_COMMAND, "--jobs", "2", cwd=killed.parent)
        while _progressed(killed) == before and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    last = ftnn(*_COMMAND, "--jobs", "2", "--json", cwd=killed.parent)
    printed, _ = last.communicate(timeout=600)
    assert last.returncode == 0
    other = ftnn(*_COMMAND, "--jobs", "1", "--json", cwd=tmp_path / "b")
    undisturbed, _ = other.communicate(timeout=600)
    cells, others = (json.loads(text)["cells"] for text in (printed, undisturbed))
    assert [each["digest"] for each in cells] == [each["digest"] for each in others]
    assert len(cells) == 6
    with Store(killed) as mine, Store(tmp_path / "b" / "ftnn.sqlite") as its:
        assert digests(mine) == digests(its)
        assert len(mine.rows()) == 12


@pytest.mark.slow
def test_ctrl_c_leaves_everything_to_go_on_from(tmp_path: Path) -> None:
    process = ftnn(*_COMMAND, "--jobs", "1", cwd=tmp_path)
    while _progressed(tmp_path / "ftnn.sqlite") == (0, "") and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    with Store(tmp_path / "ftnn.sqlite") as store:
        assert store.claim([replace(cell()).task().key], "another", 1)
        assert store._db.all("SELECT count(*) FROM claims WHERE owner != 'another'") == [(0,)]
