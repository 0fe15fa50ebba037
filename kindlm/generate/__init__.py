"""Writes tests for an agent: from a plan of a model, recordings, attacks, and other suites."""
