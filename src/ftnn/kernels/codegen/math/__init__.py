"""The elementary functions as vector instructions."""
