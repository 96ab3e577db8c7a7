"""The command `ftnn`: thin, over what the package does."""

from ftnn.cli import _bench, _functions, _inspect, _predict, _report, _reproduce, _store, _train
from ftnn.cli._app import app as app

COMMANDS = (_functions, _train, _predict, _inspect, _reproduce, _store, _report, _bench)
"""Each module adds its commands to the application when it is imported."""
