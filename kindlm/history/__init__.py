"""Reads recorded runs: queries over the read models, verdicts, comparisons and statistics."""
