"""A real Ray cluster of two nodes on this machine, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftnn.errors import FtnnError
from ftnn.experiments import Store
from ftnn.experiments.paper.mnist.cells import Layerwise
from tests.experiments.quick import cell, digests, run_inline

pytest.importorskip("ray", reason="Ray is not installed: pip install 'ftnn[ray]'")

# In a separate process: Ray leaves threads and sockets behind, and warns about them at exit.
_SCRIPT = """
import sys
import ray
from ray.cluster_utils import Cluster
from ftnn.experiments import Store, run
from ftnn.experiments.grid.jobs import Progress
from ftnn.experiments.grid.ray import RayExecutor
from tests.experiments.quick import Quiet
from tests.experiments.grid.test_ray import CELLS

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)

class Killing(Quiet):
    killed = False

    def progress(self, task, progress):
        self.kill()

    def finished(self, task, outcome):
        super().finished(task, outcome)
        if len(self.finished_tasks) >= 2:
            self.kill()

    def kill(self):
        if not Killing.killed:
            Killing.killed = True
            cluster.remove_node(second, allow_graceful=False)

watcher = Killing()
executor = RayExecutor(cluster.address)
assert executor.slots == 2, executor.slots
with Store(sys.argv[1]) as store:
    run([each.task() for each in CELLS], store, executor, watcher)
print("killed" if Killing.killed else "alive", len(watcher.lost_tasks))
cluster.shutdown()
"""
CELLS = [
    cell(name, depth, data="mnist:2000", width=24, epochs=(6, 4))
    for name in ("F03", "F12")
    for depth in (1, 3)
]


@pytest.mark.slow
def test_losing_a_node_does_not_change_results(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)]),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
    }
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, tmp_path / "ray.sqlite"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    fate, lost = done.stdout.split()[-2:]
    assert fate == "killed"
    assert int(lost) >= 1
    with Store(tmp_path / "ray.sqlite") as store, Store(tmp_path / "local.sqlite") as local:
        run_inline(CELLS, local)
        assert digests(store) == digests(local)
        kinds = [row.task.kind for row in store.rows()]
        assert (kinds.count("lwt"), kinds.count("ft")) == (6, 4)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("nonsense", "expected HOST:PORT"),
        ("localhost:port", "expected HOST:PORT"),
    ],
)
def test_an_unreachable_cluster_is_an_error(address: str, message: str) -> None:
    from ftnn.experiments.grid.ray import RayExecutor

    with pytest.raises(FtnnError) as caught:
        RayExecutor(address)
    assert message in str(caught.value)


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ftnn.experiments.grid.ray import RayExecutor

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FtnnError, match=r"pip install 'ftnn\[ray\]'"):
        RayExecutor("auto")


def test_the_cells_of_this_test_share_stages() -> None:
    assert Layerwise(CELLS[0]) in CELLS[1].task().chain
