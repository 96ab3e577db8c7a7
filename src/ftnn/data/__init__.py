"""Data as NumPy arrays: embedded MNIST, directories of IDX files, digits of π, and the paper's own tables."""

from ftnn.data._idx import Images, idx_directory, read_idx
from ftnn.data._mnist import mnist
from ftnn.data._paper import PaperCell, paper_best, paper_cell, paper_grid
from ftnn.data._pi import pi_digits
from ftnn.data._preparation import Preparation
from ftnn.data._tables import Table, read_table

__all__ = [
    "Images",
    "PaperCell",
    "Preparation",
    "Table",
    "idx_directory",
    "mnist",
    "paper_best",
    "paper_cell",
    "paper_grid",
    "pi_digits",
    "read_idx",
    "read_table",
]
