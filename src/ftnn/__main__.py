"""`python -m ftnn`."""

from ftnn.cli import app

app()
