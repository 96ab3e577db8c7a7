"""The paper's experiments: grids of cells, a store of results, executors, and a report."""

from ftnn.experiments.grid.database import StoreError as StoreError
from ftnn.experiments.grid.local import LocalExecutor as LocalExecutor
from ftnn.experiments.grid.scheduler import run as run
from ftnn.experiments.grid.store import Store as Store
from ftnn.experiments.grid.watch import watcher as watcher
from ftnn.experiments.paper.conic.cells import ConicCell as ConicCell
from ftnn.experiments.paper.conic.cells import conic_cells as conic_cells
from ftnn.experiments.paper.mnist.cells import Cell as Cell
from ftnn.experiments.paper.mnist.direct import DirectCell as DirectCell
from ftnn.experiments.paper.mnist.direct import direct_cells as direct_cells
from ftnn.experiments.paper.mnist.grids import mnist_cells as mnist_cells
from ftnn.experiments.paper.pi import PiCell as PiCell
from ftnn.experiments.paper.pi import pi_cells as pi_cells
