"""Plays a script: finds the rule for a conversation and computes its reply.

In order: placeholders in replies, conditions of rules, answers to questions of kindlm's judges and
drift checks, and the reply to a conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from kindlm.dataclass import replace
from kindlm.matching import ABSENT, equal, matches, value_at
from kindlm.strict_json import json_or_text
from kindlm.testing.node import ScriptError
from kindlm.testing.script import JudgeCheck, JudgeRule, Reply, Script, When
from kindlm.testing.scripted_talk import GRADED_QUESTION, TalkRequest

# `{{path}}`, or `{{path|default}}` for a path that may be absent. Values are inserted once and
# never expanded again. A text that is one placeholder keeps the value's type.
_PLACEHOLDER = re.compile(r"\{\{([^{}|]+)(?:\|([^{}]*))?\}\}")


def fill(template: Any, scope: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced; raises `ScriptError` without a value."""
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole is not None:
            return _value(whole, scope)
        return _PLACEHOLDER.sub(lambda match: _as_text(_value(match, scope)), template)
    if isinstance(template, dict):
        return {key: fill(value, scope) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, scope) for value in template]
    return template


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(match: re.Match[str], scope: Mapping[str, Any]) -> Any:
    path, default = match.group(1).strip(), match.group(2)
    value = value_at(scope, path.split("."))
    if value is ABSENT and default is None:
        raise ScriptError(f"there is no value for {{{{{path}}}}}")
    return default if value is ABSENT else value


def captures_of(when: When, conversation: TalkRequest) -> dict[str, str] | None:
    """Return the captures of a rule's conditions if all hold, else None."""
    turns = conversation.turns
    results = {call.name: call.result for call in conversation.calls}
    this_turn = {call.name for call in turns[-1].calls} if turns else set()
    is_asked = conversation.asks == when.asks
    if when.structured is not None:
        is_asked = conversation.structured == when.structured
    holds = (
        is_asked
        and (not when.models or any(fnmatchcase(conversation.model, it) for it in when.models))
        and this_turn.issuperset(when.called_this_turn)
        and this_turn.isdisjoint(when.not_called_this_turn)
        and results.keys() >= {*when.called}
        and results.keys().isdisjoint(when.not_called)
        and {*conversation.offered}.issuperset(when.offered)
        and {*conversation.offered}.isdisjoint(when.not_offered)
    )
    if not holds:
        return None
    for path, test in when.results:
        value = value_at(results, path.split("."))
        is_equal = test.equals is ABSENT or equal(test.equals, value)
        if test.exists != (value is not ABSENT) or not is_equal:
            return None
    captures: dict[str, str] = {}
    for text_test, text in (
        (when.system, conversation.system),
        (when.said, "\n".join(turn.user for turn in turns)),
        (when.user, conversation.user),
    ):
        found = {} if text_test is None else text_test.captures(text)
        if found is None:
            return None
        captures |= found
    return captures


# A question to the judge is one JSON object between two boundary lines.
_DATA = re.compile(r"^<<<KINDLM-DATA-(\w+)\n(.*)\n^KINDLM-DATA-\1>>>$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_UNREADABLE = {"reasoning": "The question holds no readable data between its boundary lines."}


def answer_judge(script: Script, question: str, *, on_scale: bool = False) -> dict[str, Any]:
    """Return a judgement: `score` and `reasoning`; without a score for an unreadable question.

    The highest score is 1, or with `on_scale` the number at the beginning of the rubric.
    """
    data = _read_data(question)
    if data is None or not isinstance(data.get("transcript"), dict):
        return _UNREADABLE
    criteria = str(data.get("criteria", ""))
    rules = (rule for rule in script.judge_rules if rule.criteria.captures(criteria) is not None)
    score = script.judge_default
    reasoning = f"No rule for the criterion {criteria!r}; the default score."
    if (rule := next(rules, None)) is not None:
        score, reasoning = _score(rule, data["transcript"])
    highest = _NUMBER.match(str(data.get("rubric"))) if on_scale else None
    score = score if highest is None else score * float(highest[0])
    return {"score": score, "reasoning": reasoning}


def answer_drift(question: str) -> dict[str, Any]:
    """Return the drift: `driftScore` is one minus the share of words that both texts have."""
    data = _read_data(question)
    if data is None:
        return _UNREADABLE
    baseline, current = (
        set(_WORD.findall(str(data.get(key)).casefold())) for key in ("baseline", "current")
    )
    both, either = baseline & current, baseline | current
    score = round(1 - len(both) / len(either), 4) if either else 0.0
    return {
        "driftScore": score,
        "reasoning": f"{len(both)} of {len(either)} different words occur in both texts.",
    }


def _read_data(question: str) -> dict[str, Any] | None:
    found = _DATA.search(question)
    data = None if found is None else json_or_text(found.group(2))
    return data if isinstance(data, dict) else None


def _score(rule: JudgeRule, transcript: dict[str, Any]) -> tuple[float, str]:
    """Return the score of a transcript, and the reasoning."""
    text = str(transcript.get("finalText") or "")
    messages = transcript.get("messages")
    calls: list[dict[str, Any]] = []
    for message in messages if isinstance(messages, list) else []:
        listed = message.get("toolCalls") if isinstance(message, dict) else None
        calls += [call for call in listed or [] if isinstance(call, dict)]
    found = [check for check in rule.checks if _holds(check, text, calls)]
    missing = [check for check in rule.checks if check not in found]
    total = sum(check.weight for check in rule.checks)
    score = round(sum(check.weight for check in found) / total, 4) if total else 0.0
    return score, f"Found: {_notes(found)}. Missing: {_notes(missing)}."


def _notes(checks: list[JudgeCheck]) -> str:
    return "; ".join(check.note for check in checks) or "nothing"


def _holds(check: JudgeCheck, text: str, calls: list[dict[str, Any]]) -> bool:
    if check.says is not None:
        return bool(text) and check.says.captures(text) is not None
    names = [call.get("name") for call in calls]
    if check.called is not None:
        made = [call.get("arguments") for call in calls if call.get("name") == check.called]
        return any(not check.arguments or matches(check.arguments, found) for found in made)
    if check.not_called is not None:
        return check.not_called not in names
    remaining = iter(names)
    return all(name in remaining for name in check.in_order)


UNMATCHED = "(The script has no rule for this request.)"


def play(script: Script, conversation: TalkRequest) -> tuple[str, Reply]:
    """Return the name of the first matching rule, or of the built-in answer, and the reply."""
    for rule in script.rules:
        captures = captures_of(rule.when, conversation)
        if captures is not None:
            try:
                return rule.name, _filled(rule.reply, conversation, captures)
            except ScriptError as error:
                raise ScriptError(f"rule {rule.name!r}: {error}") from None
    if conversation.asks == "judge":
        on_scale = conversation.structured == GRADED_QUESTION
        judged = answer_judge(script, conversation.user, on_scale=on_scale)
        return "judge", Reply(structured=judged)
    if conversation.asks == "drift":
        return "drift", Reply(structured=answer_drift(conversation.user))
    return "none", Reply(text=UNMATCHED)


def _filled(template: Reply, conversation: TalkRequest, captures: dict[str, str]) -> Reply:
    """Return the reply of a rule with placeholders replaced, by the latest call to each tool."""
    scope = {
        **captures,
        "user": conversation.user,
        "system": conversation.system,
        "model": conversation.model,
        "results": {call.name: call.result for call in conversation.calls},
        "arguments": {call.name: call.arguments for call in conversation.calls},
    }
    calls = tuple(replace(call, arguments=fill(call.arguments, scope)) for call in template.calls)
    return replace(
        template,
        text=None if template.text is None else _as_text(fill(template.text, scope)),
        structured=None if template.structured is None else fill(template.structured, scope),
        calls=calls if conversation.parallel else calls[:1],
    )
