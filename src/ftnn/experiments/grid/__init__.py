"""Runs tasks and keeps their results: tasks, a scheduler, executors, a store, files to exchange.

Private as a whole. It knows no experiment: those subclass `Task` and register themselves (see `registry`).
"""
