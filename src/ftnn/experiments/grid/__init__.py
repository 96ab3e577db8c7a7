"""Runs tasks and stores their results: tasks, scheduler, executors, store, import and export.

Private as a whole, and independent of any experiment: experiments subclass `Task` and call `register`.
"""
