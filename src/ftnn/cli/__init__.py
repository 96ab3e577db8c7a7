"""The command `ftnn`: thin, over what the package does."""

from ftnn.cli import _bench, _experiments, _functions, _inspect, _report, _train
from ftnn.cli._app import app as app

COMMANDS = (_functions, _train, _inspect, _experiments, _report, _bench)
"""Each module adds its commands to the application when it is imported."""
