"""Queries over the read models; the status of tests, gates, and the verdict of a run."""
