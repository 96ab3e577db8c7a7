"""Grids: shared stages, failed chains, lost workers, and interrupted runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ftnn.data import mnist
from ftnn.errors import FtnnError
from ftnn.experiments import Cell, LocalExecutor, PiCell, Store, run
from ftnn.experiments.grid.jobs import Broken, Checkpoint, Event, Job, Lost, Outcome, Predecessor, Progress
from ftnn.experiments.grid.registry import KINDS
from ftnn.experiments.grid.task import AnyTask, OnProgress, Task
from ftnn.experiments.paper.mnist.cells import Layerwise
from ftnn.experiments.paper.mnist.training import network_of, problem_of
from ftnn.training import digest, fit
from tests.experiments.quick import Inline, Quiet, cell, digests, run_inline


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a.sqlite")


def by_fit(cell: Cell) -> tuple[str, float | None, float | None, str | None]:
    """The result of training a cell with `fit`, in one go."""
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
    def test_a_stage_shared_by_cells_is_run_once(self, store: Store) -> None:
        cells = [cell(layers=depth) for depth in (3, 1, 2)]
        executor = run_inline(cells, store)
        assert sorted(task.title for task in executor.ran) == [
            *["FT of 1", "FT of 2", "FT of 3"],
            *["LWT 1", "LWT 2", "LWT 3"],
        ]
        assert len(store.rows()) == 6

    @pytest.mark.parametrize("function", ["F03", "F12", "F08"])
    def test_every_cell_gives_the_same_result_as_fit(self, store: Store, function: str) -> None:
        cells = [cell(function, depth, gamma=-1, epochs=(3, 3)) for depth in (1, 3)]
        run_inline(cells, store)
        for each in cells:
            (row,) = store.rows([each.task().key])
            assert (row.digest, row.lwt_accuracy, row.ft_accuracy) == by_fit(each)[:3]
            at_chance = f"the final accuracy, {row.ft_accuracy:.2f} %, is no better than chance"
            assert row.failed == (at_chance if (row.ft_accuracy or 0) <= 20 else None)

    def test_both_stages_have_an_accuracy_on_validation_images(self, store: Store) -> None:
        """On training images from the 50,000th on, which no stage has seen."""
        trained = cell("F12", layers=2, gamma=-1, epochs=(3, 3), width=16, data="mnist:1000")
        run_inline([trained], store)
        (row,) = store.rows([trained.task().key])
        (before,) = store.rows([Layerwise(trained).key])
        data = mnist()
        x, y = torch.from_numpy(data.train_images[50_000:]), data.train_labels[50_000:]
        expected: list[float] = []
        for epochs in ((3, 0), (3, 3)):
            net, problem = network_of(trained), problem_of(trained.data)
            fit(net, problem.x, problem.y, gamma=-1, epochs=epochs, batch_size=16)
            expected.append(100 * (net(x).argmax(1).numpy() == y).mean())
        assert [before.validation_accuracy, row.validation_accuracy] == pytest.approx(expected)
        assert row.lwt_validation_accuracy == before.validation_accuracy
        assert expected[0] != expected[1]

    def test_an_activation_can_be_a_formula(self, store: Store) -> None:
        """A limit of 0.5 changes the result, and one that is never reached does not."""
        cells = [replace(cell(gamma=-1), activation=f"min(relu(x), {limit})") for limit in ("1e9", "0.5")]
        run_inline([*cells, replace(cell(gamma=-1), activation="relu")], store)
        limited = {row.task.cell.activation: row.loss for row in store.rows() if row.task.ends_cell}
        assert limited["min(relu(x), 1e9)"] == pytest.approx(limited["relu"], rel=1e-4)
        assert limited["min(relu(x), 0.5)"] != pytest.approx(limited["relu"], rel=1e-4)

    def test_a_network_that_saw_all_images_has_no_validation_accuracy(self, store: Store) -> None:
        seen = cell(data="mnist", epochs=(0, 0))
        run_inline([seen], store)
        assert {row.validation_accuracy for row in store.rows()} == {None}

    def test_finished_stages_are_not_run_again(self, store: Store) -> None:
        run_inline([cell(layers=2)], store)
        assert run_inline([cell(layers=1), cell(layers=2)], store).ran == [cell(layers=1).task()]

    def test_a_failed_stage_ends_its_chain_and_each_cell_says_why(self, store: Store) -> None:
        """exp overflows at once at this learning rate."""
        broken = [cell("p*exp(q*x + r) where q in [50, 90]", depth, gamma=20) for depth in (1, 2, 3)]
        executor = run_inline(broken, store)
        assert "LWT 2" not in [task.title for task in executor.ran]
        for each in broken:
            (row,) = store.rows([each.task().key])
            assert row.failed is not None
            assert "layer-wise training, hidden layer 1, epoch 1" in row.failed
            assert (row.digest, row.failed) == (by_fit(each)[0], by_fit(each)[3])

    def test_a_cell_that_ends_at_chance_counts_as_failed(self, store: Store) -> None:
        weak = cell(gamma=-60)
        run_inline([weak], store)
        (row,) = store.rows([weak.task().key])
        assert row.failed is not None
        assert "no better than chance" in row.failed

    def test_a_stage_without_parameters_is_run_again_if_a_later_one_needs_it(self, store: Store) -> None:
        run_inline([cell(layers=1)], store)
        first = Layerwise(cell(layers=1))
        store._db.execute("UPDATE details SET arrays = NULL WHERE key = ?", (first.key,))
        assert first in run_inline([cell(layers=2)], store).ran
        (row,) = store.rows([cell(layers=2).task().key])
        assert row.digest == by_fit(cell(layers=2))[0]


class TestCheckpoints:
    def checkpoints(self, job: Job, monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
        monkeypatch.setattr("ftnn.experiments.paper.running.SECONDS_BETWEEN", 0)
        reports: list[Progress] = []
        job.run(reports.append)
        return reports

    @pytest.mark.parametrize("kind", ["lwt", "ft"])
    def test_a_stage_resumed_at_any_epoch_gives_the_same_result(
        self, store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = cell("F12", 2, epochs=(4, 4))
        run_inline([chosen], store)
        task = chosen.task() if kind == "ft" else Layerwise(chosen)
        before = tuple(stage for part in task.chain if (stage := store.kept(part)) is not None)
        (row,) = store.rows([task.key])
        reports = self.checkpoints(Job(task, before), monkeypatch)
        assert len(reports) >= 2
        for progress in reports:
            store.keep("k", progress.checkpoint)  # through the store, as in a real run
            again = Job(task, before, store.checkpoint("k")).run(lambda _: None)
            assert again.digest == row.digest
            assert [e.loss for e in again.epochs] == [e.loss for e in store.epochs(task.key)]
            assert (again.lwt_accuracy, again.ft_accuracy) == (row.lwt_accuracy, row.ft_accuracy)

    @pytest.mark.parametrize("keep_state", [False, True])
    def test_a_curve_of_pi_resumed_at_any_epoch_gives_the_same_result(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, keep_state: bool
    ) -> None:
        task = PiCell(8, 13, epochs=9, keep_state=keep_state).task()
        whole = Job(task).run(lambda _: None)
        assert len(whole.epochs) == 9
        for progress in self.checkpoints(Job(task), monkeypatch):
            store.keep("k", progress.checkpoint)
            again = Job(task, (), store.checkpoint("k")).run(lambda _: None)
            assert again.digest == whole.digest
            assert [e.loss for e in again.epochs] == [e.loss for e in whole.epochs]
            assert [e.epoch for e in again.epochs] == list(range(1, 10))


class TestClaims:
    def test_claims_of_a_dead_process_are_released_at_once(self, store: Store) -> None:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        task = cell().task()
        store.claim([part.key for part in (*task.chain, task)], f"{socket.gethostname()} {gone.pid} x", 1e9)
        assert run_inline([cell()], store).ran == [*task.chain, task]

    def test_claims_of_live_processes_and_other_machines_stay(self, store: Store) -> None:
        alive, elsewhere = f"{socket.gethostname()} {os.getppid()} x", "another-machine 1 x"
        store.claim(["a"], alive, 1e9)
        store.claim(["b"], elsewhere, 1e9)
        run_inline([cell()], store)
        assert sorted(store.owners()) == sorted([alive, elsewhere])


class _Clumsy(Inline):
    """Loses each stage some times, after its first epoch."""

    def __init__(self, times: int = 1):
        super().__init__()
        self.times = times
        self.lost: dict[str, int] = {}
        self.resumed = 0

    def events(self, seconds: float) -> list[Event]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        events: list[Event] = []
        outcome = job.run(events.append)
        self.resumed += job.checkpoint is not None
        if self.lost.get(job.task.key, 0) < self.times:
            self.lost[job.task.key] = self.lost.get(job.task.key, 0) + 1
            return [*events[:1], Lost(job.task.key, "gone")]
        return [outcome, outcome]  # a duplicate result is ignored


class TestLostWorkers:
    def test_stages_of_lost_workers_resume_from_their_checkpoints(
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

    def test_a_stage_whose_worker_keeps_dying_is_given_up(self, store: Store) -> None:
        executor = _Clumsy(times=99)
        with pytest.raises(FtnnError, match=r"gave up on .*: its worker died 3 times: gone"):
            run([cell().task()], store, executor, Quiet())
        assert executor.closed

    def test_an_exception_in_a_stage_is_reported_and_claims_are_released(self, store: Store) -> None:
        class Faulty(Inline):
            def events(self, seconds: float) -> list[Event]:
                return [Broken(self.jobs[0].task.key, "ValueError: oh")]

        with pytest.raises(FtnnError, match=r"could not run .*: ValueError: oh"):
            run([cell().task()], store, Faulty(), Quiet())
        assert run_inline([cell()], store).ran


@dataclass(frozen=True)
class Nothing:
    """A cell without settings."""


class Unreadable(Task[Nothing]):
    """A stage whose data cannot be read."""

    kind = "unreadable"
    results = 1
    cell_type = Nothing
    title = work = "unreadable"  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    epochs = effort = 1  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def run(
        self, before: tuple[Predecessor, ...], checkpoint: Checkpoint | None, on_progress: OnProgress
    ) -> Outcome:
        raise FileNotFoundError("no such data")


class TestProcesses:
    @pytest.mark.slow
    def test_two_worker_processes_give_the_same_results_as_none(self, store: Store, tmp_path: Path) -> None:
        tasks = [cell(name, depth).task() for name in ("F03", "F12") for depth in (1, 2)]
        run(tasks, store, LocalExecutor(2), Quiet())
        with Store(tmp_path / "b.sqlite") as other:
            run_inline([cell(name, depth) for name in ("F03", "F12") for depth in (1, 2)], other)
            assert digests(store) == digests(other)
            for key in digests(store):
                ours, theirs = store.arrays(key), other.arrays(key)
                assert ours is not None
                assert theirs is not None
                assert ours.keys() == theirs.keys()
                assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    @pytest.mark.slow
    def test_a_killed_worker_is_replaced(self, store: Store) -> None:
        watcher = Quiet()
        executor = LocalExecutor(1)

        class Killing(Quiet):
            def progress(self, task: AnyTask, progress: Progress) -> None:
                if not watcher.lost_tasks:
                    os.kill(executor._workers[0].process.pid or 0, signal.SIGKILL)

            def lost(self, task: AnyTask, reason: str) -> None:
                assert "SIGKILL" in reason
                watcher.lost(task, reason)

        chosen = PiCell(64, 100, epochs=10_000)  # long enough to report progress before it ends
        run([chosen.task()], store, executor, Killing())
        assert watcher.lost_tasks
        (row,) = store.rows()
        assert row.digest == Job(chosen.task()).run(lambda _: None).digest

    def test_an_oserror_of_a_stage_is_reported_and_not_retried(self, store: Store) -> None:
        watcher = Quiet()
        task = Unreadable(Nothing())
        KINDS["unreadable"] = Unreadable
        try:
            with pytest.raises(FtnnError, match=r"(?s)could not run .*FileNotFoundError: no such data"):
                run([task], store, LocalExecutor(1), watcher)
        finally:
            del KINDS["unreadable"]
        assert watcher.lost_tasks == []

    def test_the_number_of_workers_must_be_positive(self) -> None:
        with pytest.raises(FtnnError, match="jobs must be 1 or more, got 0"):
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
        stderr=subprocess.PIPE,
        start_new_session=True,
        # In the background of a shell, Ctrl-C is ignored, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _progress(path: Path) -> tuple[int, list[tuple[str, int]]]:
    """How many rows a store has, and the checkpoints of unfinished stages."""
    if not path.exists():
        return 0, []
    with Store(path) as store:
        return len(store.rows()), store._db.all("SELECT key, length(notes) FROM checkpoints ORDER BY key")


@pytest.mark.slow
def test_a_command_that_is_killed_three_times_ends_with_the_same_digests(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    killed = tmp_path / "a" / "ftnn.sqlite"
    for _ in range(3):
        before = _progress(killed)
        process = ftnn(*_COMMAND, "--jobs", "2", cwd=killed.parent)
        while _progress(killed) == before and process.poll() is None:
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
    with Store(killed) as resumed, Store(tmp_path / "b" / "ftnn.sqlite") as reference:
        assert digests(resumed) == digests(reference)
        assert len(resumed.rows()) == 12


def _check_interrupted(process: subprocess.Popen[bytes], store: Path) -> None:
    """Interrupt a command; expect exit code 130 and a message, no worker left, and no claim left."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in errors) == (130, False), errors.decode()
    assert b"interrupted; finished work is in ftnn.sqlite" in errors
    deadline = time.monotonic() + 10
    while _group_exists(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _group_exists(process.pid)
    with Store(store) as opened:
        assert opened.owners() == []


def _group_exists(pid: int) -> bool:
    """Whether the session that this process led still has processes."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_after_ctrl_c_in_an_epoch_progress_is_kept_and_nothing_is_claimed(tmp_path: Path) -> None:
    process = ftnn(*_COMMAND, "--jobs", "1", cwd=tmp_path)
    store = tmp_path / "ftnn.sqlite"
    while _progress(store) == (0, []) and process.poll() is None:
        time.sleep(0.05)
    _check_interrupted(process, store)
    assert _progress(store) != (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2, 0.5, 1.0, 1.5])
def test_ctrl_c_ends_a_grid_properly_at_any_moment(tmp_path: Path, seconds: float) -> None:
    """While modules load, workers start, or stages run."""
    process = ftnn(*_COMMAND, "--jobs", "2", cwd=tmp_path)
    while not (tmp_path / "ftnn.sqlite").exists() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    _check_interrupted(process, tmp_path / "ftnn.sqlite")


_INTERRUPTED_IN_EXEC = """
import runpy
from ftnn.experiments import Store

def interrupted(store: Store) -> None:
    exec("raise KeyboardInterrupt")

Store.__enter__ = interrupted
runpy.run_module("ftnn", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_inside_exec_of_source_text_ends_with_exit_code_130(tmp_path: Path) -> None:
    """Python would end `python -m ftnn` with a signal, although the interrupt was handled."""
    (tmp_path / "interrupted.py").write_text(_INTERRUPTED_IN_EXEC)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted", *_COMMAND], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 130
    assert b"interrupted; finished work is in ftnn.sqlite" in done.stderr
