"""Elementary functions as vector instructions."""
