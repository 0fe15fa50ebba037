"""Plays the judge: scores computed from the transcript that the question holds.

The question is one JSON object between two boundary lines. A score is the weighted share of the
things that the script's judge rule looks for and finds, so a worse answer scores lower.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.conditions import json_equal

if TYPE_CHECKING:
    from kindlm.testing.script import JudgeCheck, JudgeRule, Script

_DATA = re.compile(r"^<<<KINDLM-DATA-(\w+)\n(.*)\n^KINDLM-DATA-\1>>>$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")
_UNREADABLE = {"reasoning": "The question holds no readable data between its boundary lines."}


def answer_judge(script: Script, question: str) -> dict[str, Any]:
    """The judgement: `score` and `reasoning`; without a score if the question is unreadable."""
    data = _read_data(question)
    if data is None or not isinstance(data.get("transcript"), dict):
        return _UNREADABLE
    criteria = str(data.get("criteria", ""))
    rule = _rule_for(script, criteria)
    if rule is None:
        reasoning = f"No rule for the criterion {criteria!r}; the default score."
        return {"score": script.judge_default, "reasoning": reasoning}
    return _score(rule, data["transcript"])


def answer_drift(question: str) -> dict[str, Any]:
    """The drift: `driftScore`, one minus the share of words that both texts have."""
    data = _read_data(question)
    if data is None:
        return _UNREADABLE
    baseline, current = (_words(data.get(key)) for key in ("baseline", "current"))
    both, either = baseline & current, baseline | current
    score = round(1 - len(both) / len(either), 4) if either else 0.0
    return {
        "driftScore": score,
        "reasoning": f"{len(both)} of {len(either)} different words occur in both texts.",
    }


def _words(value: Any) -> set[str]:
    return set(_WORD.findall(str(value).casefold()))


def _read_data(question: str) -> dict[str, Any] | None:
    found = _DATA.search(question)
    if found is None:
        return None
    try:
        data = json.loads(found.group(2))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _rule_for(script: Script, criteria: str) -> JudgeRule | None:
    rules = script.judge_rules
    return next((rule for rule in rules if rule.criteria.captures(criteria) is not None), None)


def _score(rule: JudgeRule, transcript: dict[str, Any]) -> dict[str, Any]:
    text = str(transcript.get("finalText") or "")
    calls = _tool_calls(transcript)
    found: list[JudgeCheck] = []
    missing: list[JudgeCheck] = []
    for check in rule.checks:
        (found if _holds(check, text, calls) else missing).append(check)
    total = sum(check.weight for check in rule.checks)
    score = round(sum(check.weight for check in found) / total, 4) if total else 0.0
    reasoning = f"Found: {_notes(found)}. Missing: {_notes(missing)}."
    return {"score": score, "reasoning": reasoning}


def _notes(checks: list[JudgeCheck]) -> str:
    return "; ".join(check.note for check in checks) or "nothing"


def _tool_calls(transcript: dict[str, Any]) -> list[dict[str, Any]]:
    messages = transcript.get("messages")
    calls: list[dict[str, Any]] = []
    for message in messages if isinstance(messages, list) else []:
        made = message.get("toolCalls") if isinstance(message, dict) else None
        calls += [call for call in made or [] if isinstance(call, dict)]
    return calls


def _holds(check: JudgeCheck, text: str, calls: list[dict[str, Any]]) -> bool:
    if check.says is not None:
        return bool(text) and check.says.captures(text) is not None
    names = [call.get("name") for call in calls]
    if check.called is not None:
        return any(_is_call(check, call) for call in calls)
    if check.not_called is not None:
        return check.not_called not in names
    remaining = iter(names)
    return all(name in remaining for name in check.in_order)


def _is_call(check: JudgeCheck, call: dict[str, Any]) -> bool:
    arguments = call.get("arguments")
    held = arguments if isinstance(arguments, dict) else {}
    return call.get("name") == check.called and all(
        name in held and json_equal(value, held[name]) for name, value in check.arguments
    )
