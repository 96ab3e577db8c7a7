"""Layers and networks of functions, for PyTorch."""

from ftnn.nn._activations import Activation as Activation
from ftnn.nn._feed_forward import Transfer as Transfer
from ftnn.nn._files import load as load
from ftnn.nn._files import notes_of as notes_of
from ftnn.nn._files import save as save
from ftnn.nn._folding import folded as folded
from ftnn.nn._memory import Memory as Memory
from ftnn.nn._network import MemoryNetwork as MemoryNetwork
from ftnn.nn._network import Network as Network
from ftnn.nn._partial import Partial as Partial
