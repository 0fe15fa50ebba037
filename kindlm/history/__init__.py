"""Queries over the read models, and what they mean: test status, gates, the verdict of a run."""
