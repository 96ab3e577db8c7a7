"""The paper's experiments: each has its cells, how one runs, its grid and its tables, and registers itself.

Private as a whole; `ftnn.experiments` has what is public.
"""

from ftnn.experiments.paper import conic as conic
from ftnn.experiments.paper import mnist as mnist
from ftnn.experiments.paper import pi as pi
