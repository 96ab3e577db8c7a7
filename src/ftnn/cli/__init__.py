"""The command `ftnn`, a thin layer over the package."""

from ftnn.cli import _bench, _functions, _inspect, _predict, _reproduce, _store, _train
from ftnn.cli._app import app as app

COMMANDS = (_functions, _train, _predict, _inspect, _reproduce, _store, _bench)
"""Importing a module adds its commands to the application."""
