"""Translate expressions into vector instructions."""
