"""Which names of a text are those of tools."""

from __future__ import annotations

import pytest

from kindlm.generate.questions import Exchange, Sources, names_tool

LISTED = "Helps customers of a shop find an order. Tools: lookup_order, issue_refund."


@pytest.mark.parametrize("name", ["lookup_order", "issue_refund"])
def test_a_tool_is_known_by_its_whole_name(name: str) -> None:
    assert names_tool(LISTED, name)


@pytest.mark.parametrize(
    "name", ["order", "look", "o", "issue", "Tools", "a", "of a shop", "lookup", "LOOKUP_ORDER"]
)
def test_a_part_of_a_name_and_a_word_of_a_sentence_are_no_tools(name: str) -> None:
    assert not names_tool(LISTED, name)
    assert not names_tool(LISTED.replace("_", "-"), name)


@pytest.mark.parametrize(
    "text",
    [
        "Tools: search, refund.",
        "It has these tools: find and search. It is kind.",
        "Functions it may call: search (finds orders); refund",
        "Available tools:\n- search: finds orders\n- refund",
        "tools:\n1. search\n2. refund",
        "It uses the search tool.",
        "It calls `search` for that.",
        'There is "search".',
        "Call search(order) first.",
        "You have the following Tools: **search**, refund",
    ],
)
def test_a_plain_word_is_a_tool_where_it_is_called_one(text: str) -> None:
    assert names_tool(text, "search")
    assert not names_tool(text, "sea")
    assert not names_tool(text, "it")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("It calls orders.find and lookupOrder.", "orders.find"),
        ("It calls orders.find and lookupOrder.", "lookupOrder"),
        ("It calls find-order.", "find-order"),
        ("Tools: look up order, refund", "look up order"),
    ],
)
def test_names_are_written_in_many_ways(text: str, name: str) -> None:
    assert names_tool(text, name)


def test_a_tool_that_was_called_is_known_whatever_is_written() -> None:
    sources = Sources("It finds an order.", None, (Exchange("Hello", "Hi", ("order",)),))
    assert sources.knows_tool("order")
    assert not sources.knows_tool("finds")
