"""Plays a script: finds the rule for a conversation and computes its reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kindlm.testing.conversation import CallOut, Conversation, Reply
from kindlm.testing.json_equality import json_equal
from kindlm.testing.judging import answer_drift, answer_judge
from kindlm.testing.templates import MISSING, MissingValue, as_text, fill, fill_text, look_up

if TYPE_CHECKING:
    from kindlm.testing.script import Fault, Rule, Script, TextTest, ValueTest, When

UNMATCHED = "(The script has no rule for this request.)"


@dataclass(frozen=True, slots=True)
class Played:
    """What the script does with a request.

    Attributes:
        rule: Name of the rule, or of the built-in answer.
        reply: What to say.
        fault: What to do instead of a proper reply.
        delay_s: Seconds to wait first.
        mistake: What is wrong with the script, if the reply could not be computed.
    """

    rule: str
    reply: Reply
    fault: Fault | None = None
    delay_s: float = 0.0
    mistake: str | None = None


def play(script: Script, conversation: Conversation) -> Played:
    """The reply to a conversation: of the first rule that matches, else the built-in one.

    Raises:
        ScriptError: when a pattern of the script takes too long.
    """
    for rule in script.rules:
        captures = _matches(rule.when, conversation)
        if captures is not None:
            return _play_rule(rule, conversation, captures)
    return _built_in(script, conversation)


def _built_in(script: Script, conversation: Conversation) -> Played:
    if conversation.asks == "judge":
        return Played("judge", Reply(structured=answer_judge(script, conversation.user)))
    if conversation.asks == "drift":
        return Played("drift", Reply(structured=answer_drift(conversation.user)))
    return Played("none", Reply(text=UNMATCHED))


def _play_rule(rule: Rule, conversation: Conversation, captures: dict[str, str]) -> Played:
    template = rule.reply
    scope = _scope(conversation, captures)
    try:
        reply = Reply(
            text=None if template.text is None else fill_text(template.text, scope),
            structured=None if template.json is None else fill(template.json, scope),
            calls=tuple(
                CallOut(call.name, fill(call.arguments, scope), call.raw_arguments)
                for call in template.calls
            ),
            finish=template.finish,
            usage=template.usage,
            reports_usage=template.reports_usage,
        )
    except MissingValue as missing:
        mistake = f"rule {rule.name!r}: there is no value for {{{{{missing}}}}}"
        return Played(rule.name, Reply(), mistake=mistake)
    if not conversation.parallel:
        reply = replace(reply, calls=reply.calls[:1])
    return Played(rule.name, reply, template.fault, template.delay_ms / 1000)


def _scope(conversation: Conversation, captures: dict[str, str]) -> dict[str, Any]:
    """What placeholders can name; of several calls of a tool the latest counts."""
    calls = conversation.calls
    return {
        **captures,
        "user": conversation.user,
        "system": conversation.system,
        "model": conversation.model,
        "results": {call.name: call.result for call in calls},
        "arguments": {call.name: call.arguments for call in calls},
    }


def _matches(when: When, conversation: Conversation) -> dict[str, str] | None:
    """The captures of a rule's conditions if they all hold, else None."""
    if when.asks != conversation.asks or not _request_matches(when, conversation):
        return None
    if not _tools_match(when, conversation):
        return None
    return _text_captures(when, conversation)


def _request_matches(when: When, conversation: Conversation) -> bool:
    if when.wire is not None and when.wire != conversation.wire:
        return False
    if when.models and not any(fnmatchcase(conversation.model, name) for name in when.models):
        return False
    if when.structured is not None and when.structured != conversation.structured:
        return False
    return when.user_turns is None or when.user_turns == len(conversation.turns)


def _tools_match(when: When, conversation: Conversation) -> bool:
    turns = conversation.turns
    called = {call.name for turn in turns for call in turn.calls}
    called_now = {call.name for call in turns[-1].calls} if turns else set()
    offered = set(conversation.offered)
    return (
        called.issuperset(when.called)
        and called.isdisjoint(when.not_called)
        and called_now.issuperset(when.called_this_turn)
        and called_now.isdisjoint(when.not_called_this_turn)
        and offered.issuperset(when.offered)
        and offered.isdisjoint(when.not_offered)
        and _results_match(when, conversation)
    )


def _results_match(when: When, conversation: Conversation) -> bool:
    if not when.results:
        return True
    results = {call.name: call.result for call in conversation.calls}
    return all(_value_matches(test, look_up(path, results)) for path, test in when.results)


def _value_matches(test: ValueTest, value: Any) -> bool:
    if test.exists is not None and test.exists != (value is not MISSING):
        return False
    if test.equals and not (value is not MISSING and json_equal(test.equals[0], value)):
        return False
    if test.contains is not None and (
        value is MISSING or test.contains.casefold() not in as_text(value).casefold()
    ):
        return False
    return _within(test, value)


def _within(test: ValueTest, value: Any) -> bool:
    if test.minimum is None and test.maximum is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    above = test.minimum is None or value >= test.minimum
    return above and (test.maximum is None or value <= test.maximum)


def _text_captures(when: When, conversation: Conversation) -> dict[str, str] | None:
    captures: dict[str, str] = {}
    tests: tuple[tuple[TextTest | None, str], ...] = (
        (when.system, conversation.system),
        (when.said, "\n".join(turn.user for turn in conversation.turns)),
        (when.user, conversation.user),
    )
    for test, text in tests:
        if test is None:
            continue
        found = test.captures(text)
        if found is None:
            return None
        captures |= found
    return captures


def shape(reply: Reply, conversation: Conversation, text: str) -> tuple[str, Reply]:
    """Applies what the request asked for to the text of a reply: prefill, stop texts, length.

    Returns:
        The text to send, and the reply with the reason why it ended.
    """
    if conversation.prefill and text.startswith(conversation.prefill):
        text = text[len(conversation.prefill) :]
    stops = [(text.find(stop), stop) for stop in conversation.stop if stop in text]
    if stops:
        position, stop = min(stops)
        text, reply = text[:position], replace(reply, finish="stop", stopped_at=stop)
    limit = conversation.max_tokens
    if limit is not None and len(text) > limit * 4:
        text, reply = text[: limit * 4], replace(reply, finish="length", stopped_at=None)
    return text, reply
