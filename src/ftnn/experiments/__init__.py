"""The paper's experiments: grids of cells, a store of results, executors, and a report."""

from ftnn.experiments._grids import mnist_cells as mnist_cells
from ftnn.experiments._grids import pi_cells as pi_cells
from ftnn.experiments._local import LocalExecutor as LocalExecutor
from ftnn.experiments._scheduler import run as run
from ftnn.experiments._store import Store as Store
from ftnn.experiments._store import StoreError as StoreError
from ftnn.experiments._tasks import Cell as Cell
from ftnn.experiments._tasks import PiCell as PiCell
from ftnn.experiments._watch import watcher as watcher
