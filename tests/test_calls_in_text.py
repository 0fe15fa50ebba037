"""Calls in the text of an answer are found in the forms of chat templates, and in no other text."""

from __future__ import annotations

import pytest

from kindlm.calls_in_text import MAY_BE_CALL, tool_called_in

CALLS = (
    '<tool_call>{"name": "refund", "arguments": {"id": 7}}</tool_call>',
    'Of course.\n<tool_call>\n{"arguments": {}, "name": "refund"}',
    "<tool_call>\n<function=refund>\n<parameter=id>7</parameter>\n</function>\n</tool_call>",
    "<tool_call>refund\n<arg_key>id</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
    '<|tool_call|>[{"name": "refund", "arguments": {"id": 7}}]',
    '<minimax:tool_call>\n<invoke name="refund">\n</invoke>\n</minimax:tool_call>',
    '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="refund">',
    "<|python_tag|>refund.call(id=7)",
    '<|python_tag|>{"name": "refund", "parameters": {"id": 7}}',
    '<function=refund>{"id": 7}</function>',
    '[TOOL_CALLS][{"name": "refund", "arguments": {"id": 7}}]',
    '[TOOL_CALLS]refund[ARGS]{"id": 7}',
    "<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>refund\n```json\n{}",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.refund:0<|tool_call_argument_begin|>{}",
    '<|channel|>commentary to=functions.refund <|constrain|>json<|message|>{"id": 7}',
    '<|START_ACTION|>[{"tool_name": "refund", "parameters": {}}]<|END_ACTION|>',
    "<start_function_call>call:refund{id:7}<end_function_call>",
    'functools[{"name": "refund", "arguments": {"id": 7}}]',
    "```tool_code\nprint(refund(id=7))\n```",
    '<tools>\n{"name": "refund", "arguments": {"id": 7}}\n</tools>',
    "[refund(id=7)]",
    '{"name": "refund", "parameters": {"id": 7}}',
    '{"type": "function", "function": {"name": "refund", "arguments": {"id": 7}}}',
    '{"function": "refund", "arguments": {"id": 7}}',
    '```json\n{"name": "refund", "arguments": {"id": 7}}\n```',
    '```\n[{"name": "look", "arguments": {}}, {"name": "refund", "arguments": {}}]\n```',
    '<think>It is late.</think>\n{"name": "refund", "arguments": {"id": 7}}',
)
TEXTS = (
    "",
    "I could call refund(id=7) for you.",
    'The JSON {"name": "refund", "arguments": {}} would be a call.',
    '{"name": "refund", "reason": "It is late."}',
    '{"action": "refund", "arguments": ["It is late."]}',
    '{"plan": [{"name": "refund", "parameters": {}}]}',
    '[{"name": "refund", "description": "Refunds it.", "parameters": {"type": "object"}}]',
    '{"type": "function", "function": {"name": "refund", "description": "", "parameters": {}}}',
    "[1] The refund policy",
    "[refund policy](https://example.com)",
    "See https://shop.example/docs?to=functions.refund and &to=functions.refund.",
    "```python\nrefund(7)\n```",
    '<tool_call>{"name": "refund_policy", "arguments": {}}</tool_call>',
    "<think><tool_call>refund</tool_call>? No.</think>I cannot help.",
    "{" * 100_000,
)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_in_the_form_of_a_chat_template_is_found(text: str) -> None:
    assert MAY_BE_CALL.search(text)
    assert tool_called_in(text, ["find", "refund"]) == "refund"


@pytest.mark.parametrize("text", TEXTS)
def test_other_text_calls_nothing(text: str) -> None:
    assert tool_called_in(text, ["find", "refund"]) is None


def test_the_name_of_a_tool_may_have_any_characters() -> None:
    text = '<tool_call>{"name": "shop/refund", "arguments": {}}</tool_call>'
    assert tool_called_in(text, ["shop/refund"]) == "shop/refund"
