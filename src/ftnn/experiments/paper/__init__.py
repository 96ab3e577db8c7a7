"""The paper's experiments. Each defines its cells, tasks, grid and tables, and registers them.

Private as a whole; `ftnn.experiments` exports the public names.
"""

from ftnn.experiments.paper import conic as conic
from ftnn.experiments.paper import mnist as mnist
from ftnn.experiments.paper import pi as pi
