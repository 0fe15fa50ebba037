"""Whether a reply shows that it would list tool calls if there were any.

A ban on a tool is decided only then: a reply without such a place says nothing of calls.
"""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.agents.tool_entries import has_place_for_calls

CALL = {"type": "function", "function": {"name": "lookup", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("reply", "has_place"),
    [
        ({"tool_calls": []}, True),
        ({"toolCalls": [CALL]}, True),
        ({"message": {"tool_calls": []}}, True),
        ({"trace": {"toolUses": []}}, True),
        ({"choices": [{"message": {"tool_calls": [CALL]}}]}, True),
        ({"choices": [{"delta": {"tool_calls": []}}]}, True),
        ({"tools_used": []}, True),
        ({"tools_used": ["lookup"]}, True),
        ({"intermediate_steps": []}, True),
        ({"steps": []}, True),
        ({"steps": [{"tool": "lookup", "input": {"id": 1}}]}, True),
        ({"text": "Hi"}, False),
        ({"tool_calls": None}, False),
        ({"tools_used": None}, False),
        ({"intermediate_steps": None}, False),
        ({"steps": None}, False),
        ({"steps": ["I looked it up"]}, False),
        ({"choices": [{"message": {"content": "Hi"}}]}, False),
        ({"other": {"tool_calls": []}}, False),
        ([{"tool_calls": []}], False),
        ("tool_calls", False),
    ],
)
def test_a_usual_list_shows_it_even_if_it_is_empty(reply: Any, has_place: bool) -> None:
    assert has_place_for_calls(reply, None) is has_place


@pytest.mark.parametrize("reply", [{"text": "Hi"}, [], None])
def test_so_does_the_path_that_the_user_wrote(reply: Any) -> None:
    assert has_place_for_calls(reply, "data.calls")
