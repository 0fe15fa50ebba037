"""Recorded runs, executions and comparisons for a terminal."""
