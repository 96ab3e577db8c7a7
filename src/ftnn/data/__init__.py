"""Data as NumPy arrays: embedded MNIST, directories of IDX files, digits of π, and the paper's results."""

from ftnn.data._idx import Images as Images
from ftnn.data._idx import idx_directory as idx_directory
from ftnn.data._idx import read_idx as read_idx
from ftnn.data._mnist import mnist as mnist
from ftnn.data._paper import PaperCell as PaperCell
from ftnn.data._paper import paper_best as paper_best
from ftnn.data._paper import paper_cell as paper_cell
from ftnn.data._paper import paper_grid as paper_grid
from ftnn.data._pi import pi_digits as pi_digits
from ftnn.data._preparation import Preparation as Preparation
from ftnn.data._tables import Table as Table
from ftnn.data._tables import read_table as read_table
