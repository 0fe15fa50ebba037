"""Comparing two runs: what became of each test, and what it does otherwise than before.

`RunDiff` reads both runs side by side and holds a few numbers for each test; what changed inside a
test (calls, words, checks) is read when it is asked for.
"""

from __future__ import annotations
