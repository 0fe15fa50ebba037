"""Compares two runs: `RunDiff` reads both, test by test."""
