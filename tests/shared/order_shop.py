"""A model that looks each order up before it answers, for the stand-in server."""

from __future__ import annotations

from typing import Any


def order_shop(key: str) -> dict[str, Any]:
    """Return the script of a model that takes one key."""
    call = {"name": "lookup_order", "arguments": {"order_id": "{{id}}"}}
    return {
        "models": ["gpt-4o"],
        "keys": [key],
        "rules": [
            {
                "when": {
                    "user": {"matches": r"order (?P<id>\w+-\d+)"},
                    "notCalledThisTurn": "lookup_order",
                },
                "reply": {"toolCalls": [call]},
            },
            {"reply": {"text": "It was delivered."}},
        ],
    }
