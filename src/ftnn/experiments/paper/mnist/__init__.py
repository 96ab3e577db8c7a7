"""The first experiment: networks on MNIST, trained layer by layer and then fine-tuned; or directly."""

from ftnn.experiments.grid.registry import register
from ftnn.experiments.paper.mnist import direct
from ftnn.experiments.paper.mnist.cells import FineTuning, Layerwise
from ftnn.experiments.paper.mnist.tables import TABLES

register(Layerwise, FineTuning, direct.Direct, tables=(*TABLES, direct.TABLE))
