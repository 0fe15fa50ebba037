"""A check of kindlm.yaml that is a function."""

from __future__ import annotations

from typing import Any


def apologises(run: Any) -> float:
    """Return how well the answer apologises; `run` has text, tool_calls, conversation, …"""
    return 0.8 if "sorry" in run.text.lower() else 0.2
