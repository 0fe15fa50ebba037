"""Comparing two runs: `RunDiff` reads both side by side, test by test."""

from __future__ import annotations
