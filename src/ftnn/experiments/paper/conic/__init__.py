"""The paper's conic hypersurfaces: the regions that F19 and F20 can bound."""

from ftnn.experiments.grid.registry import register
from ftnn.experiments.paper.conic.cells import TABLE, ConicTask

register(ConicTask, tables=[TABLE])
