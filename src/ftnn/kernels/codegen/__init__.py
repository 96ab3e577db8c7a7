"""Expressions become vector instructions."""
