"""Plays a script: finds the rule for a conversation and computes its reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kindlm.testing.conditions import Situation, captures_of
from kindlm.testing.conversation import CallOut, Conversation, Reply
from kindlm.testing.judging import answer_drift, answer_judge
from kindlm.testing.templates import MissingValue, fill, fill_text

if TYPE_CHECKING:
    from kindlm.testing.script import Fault, Rule, Script

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
    situation = Situation.of(conversation)
    for rule in script.rules:
        captures = captures_of(rule.when, situation)
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
