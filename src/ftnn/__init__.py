"""Networks in which every connection is a trainable function instead of a weight."""

from ftnn import data as data
from ftnn import nn as nn
from ftnn import training as training
from ftnn.errors import FtnnError as FtnnError
from ftnn.formula import Function as Function
from ftnn.formula import Mixed as Mixed
from ftnn.formula import catalogue as catalogue
from ftnn.nn import load as load
from ftnn.nn import save as save

__version__ = "0.1.0"
