"""The assertions of promptfoo, and what they are in kindlm."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.errors import Err
from kindlm.generate.imported_tests import Checks, pattern_of
from kindlm.generate.suites import Files, NoTwinError, Part, excerpt_of, read_part
from kindlm.generate.suites.promptfoo.templates import Variables, file_value, text_of


@dataclass(frozen=True, slots=True)
class Assertion:
    """An assertion of a test: its type without `not-`, and its value with variables filled in.

    `grader` returns the id of the model that grades it; None for the default one.
    """

    type: str
    negated: bool
    value: Any
    threshold: float | None
    variables: Variables
    grader: Callable[[], str | None]

    @property
    def text(self) -> str:
        """The value as a text."""
        if isinstance(self.value, bool | dict | list) or self.value is None:
            raise self.unusual("Its value is not text")
        return text_of(self.value)

    @property
    def texts(self) -> list[str]:
        """The value as a list of texts, which may be written with commas."""
        if isinstance(self.value, str):
            return [each.strip() for each in self.value.split(",") if each.strip()]
        if not isinstance(self.value, list) or not self.value:
            raise self.unusual("Its value is not a list of texts")
        return [text_of(each) for each in self.value]

    def judge(self, criterion: Mapping[str, Any]) -> dict[str, Any]:
        """Return a check by a judge."""
        asked = dict(criterion)
        if not asked.get("criteria", "ready"):
            raise self.unusual("It has no criterion")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise self.unusual("Its threshold is not between 0 and 1")
        if self.threshold is not None:
            asked["minScore"] = self.threshold
        grader = self.grader()
        return asked | ({} if grader is None else {"model": grader})

    def unusual(self, why: str) -> NoTwinError:
        """Return the error for an assertion that is not as documented."""
        return NoTwinError(f"the assertion `{self.type}`", f"{why}: see promptfoo's documentation")


@dataclass(frozen=True, slots=True)
class Twin:
    """What a type of assertion is in kindlm; `negated` is what its `not-` is, empty for nothing.

    `make` adds the check. `different` says what kindlm does differently; `make` returns False where
    that does not matter.
    """

    kindlm: str
    negated: str
    make: Callable[[Assertion, Checks], bool | None]
    different: str = ""


def _equals(it: Assertion, checks: Checks) -> bool:
    if isinstance(it.value, dict | list):
        if it.negated:
            raise NoTwinError("`not-equals` with JSON", _PYTHON)
        checks.add_schema({"const": it.value})
        return False
    checks.add_equal(it.text, negated=it.negated)
    return not it.negated


def _contains(it: Assertion, checks: Checks) -> None:
    checks.add_text(it.text, ignores_case=it.type[0] == "i", negated=it.negated)


def _contains_any(it: Assertion, checks: Checks) -> None:
    ignores_case = it.type[0] == "i"
    if it.negated:
        for text in it.texts:
            checks.add_text(text, ignores_case=ignores_case, negated=True)
    else:
        checks.add_any_text(it.texts, ignores_case=ignores_case)


def _contains_all(it: Assertion, checks: Checks) -> None:
    for text in it.texts:
        checks.add_text(text, ignores_case=it.type[0] == "i")


def _starts_with(it: Assertion, checks: Checks) -> None:
    if not it.text:
        raise NoTwinError("an empty text", "Every answer begins with it: remove the check")
    checks.add_pattern(rf"\A{pattern_of(it.text)}", negated=it.negated)


_OTHER_IN_PYTHON = re.compile(r"\\[dwbsDWBS]|\$")


def _regex(it: Assertion, checks: Checks) -> bool:
    checks.add_pattern(it.text, negated=it.negated)
    return _OTHER_IN_PYTHON.search(it.text) is not None


def _is_json(it: Assertion, checks: Checks) -> None:
    schema = it.value
    if isinstance(schema, str) and schema:
        read = read_part("schema.yaml", schema.encode())
        schema = None if isinstance(read, Err) else read.value.value
    checks.add_schema({} if it.value in (None, "", True) else schema)


def _limit(it: Assertion) -> float:
    if it.threshold is None:
        raise NoTwinError(f"`{it.type}` without a threshold", "kindlm measures it in every run")
    if it.threshold <= 0:
        raise it.unusual("Its threshold is not above 0")
    return it.threshold


def _cost(it: Assertion, checks: Checks) -> None:
    checks.cost_usd.append(_limit(it))


def _latency(it: Assertion, checks: Checks) -> None:
    checks.latency_ms.append(_limit(it))


def _rubric(it: Assertion, checks: Checks) -> bool:
    checks.judge.append(it.judge({"criteria": it.text}))
    return it.threshold is None


def _g_eval(it: Assertion, checks: Checks) -> None:
    criteria = it.value if isinstance(it.value, list) else [it.value]
    checks.judge += [it.judge({"criteria": text_of(each)}) for each in criteria]


def _factuality(it: Assertion, checks: Checks) -> None:
    checks.judge.append(it.judge({"criteria": f"The answer agrees with these facts: {it.text}"}))


def _goal(it: Assertion, checks: Checks) -> None:
    goal = it.value.get("goal") if isinstance(it.value, dict) else it.text
    checks.judge.append(it.judge({"criteria": f"The agent achieved this goal: {text_of(goal)}"}))


def _relevance(it: Assertion, checks: Checks) -> None:
    checks.judge.append(it.judge({"ready": "relevant"}))


def _faithfulness(it: Assertion, checks: Checks) -> None:
    context = it.variables.text("context")
    if not context.strip():
        raise NoTwinError(f"`{it.type}` without the variable `context`", "Write `judge: faithful`")
    checks.judge.append(it.judge({"ready": "faithful", "context": context}))


def _similar(it: Assertion, checks: Checks) -> None:
    text = it.value[0] if isinstance(it.value, list) and len(it.value) == 1 else it.value
    if not isinstance(text, str):
        what = "`similar` to one of several texts"
        raise NoTwinError(what, "Write `similarTo` with one text, or a `judge`")
    score = 0.75 if it.threshold is None else min(max(it.threshold, 0), 1)
    checks.add_only("similar", {"text": text, "minScore": score})


def _name_of(it: Assertion, value: Any) -> str:
    """Return the name of a tool: a text, or a mapping with `name` or `pattern`."""
    name = value.get("name") or value.get("pattern") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name:
        raise it.unusual("It names no tool")
    if "*" in name or "?" in name:
        raise NoTwinError(f"the pattern {excerpt_of(name)}", "kindlm compares whole names of tools")
    return name


def _tool_used(it: Assertion, checks: Checks) -> None:
    calls: list[dict[str, Any]]
    if isinstance(it.value, dict):
        bounds = {key: it.value[key] for key in ("min", "max") if key in it.value}
        known = all(type(bound) is int and bound >= 0 for bound in bounds.values())
        if not known or bounds.get("min", 0) > bounds.get("max", bounds.get("min", 0)):
            raise it.unusual("Its bounds are not numbers of calls")
        calls = [{"tool": _name_of(it, it.value)} | ({"count": bounds} if bounds else {})]
        if it.negated and bounds:
            raise NoTwinError("`not-` with `min` or `max`", "Write `count` the other way round")
    else:
        names = it.value if isinstance(it.value, list) else [it.value]
        calls = [{"tool": _name_of(it, name)} for name in names]
    checks.tool_calls += [each | ({"shouldNotCall": True} if it.negated else {}) for each in calls]


def _tool_args(it: Assertion, checks: Checks) -> None:
    value = it.value if isinstance(it.value, dict) else {}
    arguments = value.get("args", value.get("arguments"))
    name = _name_of(it, value)
    if value.get("mode") == "exact" or "defaults" in value or "ignore" in value:
        what = "the exact comparison of arguments"
        raise NoTwinError(what, "Write `argsSchema` with `additionalProperties: false`")
    if not isinstance(arguments, dict):
        raise it.unusual("It has no `args`")
    call: dict[str, Any] = {"tool": name, "argsMatch": arguments}
    checks.tool_calls.append(call | ({"shouldNotCall": True} if it.negated else {}))


def _tool_sequence(it: Assertion, checks: Checks) -> None:
    value = it.value if isinstance(it.value, dict) else {"steps": it.value}
    steps = value.get("steps")
    if not isinstance(steps, list) or not steps:
        raise it.unusual("It has no steps")
    mode = "strict" if value.get("mode") == "exact" else "in-order"
    calls = [{"tool": _name_of(it, step)} for step in steps]
    checks.add_only("trajectory", {"mode": mode, "calls": calls})


def _tool_call_f1(it: Assertion, checks: Checks) -> None:
    if it.threshold is not None and it.threshold < 1:
        what = f"`tool-call-f1` from {it.threshold:g} on"
        raise NoTwinError(what, "Write the calls that must not be missing as `toolCalls`")
    calls = [{"tool": _name_of(it, name)} for name in dict.fromkeys(it.texts)]
    checks.add_only("trajectory", {"mode": "subset", "calls": calls})
    checks.tool_calls += calls


_PYTHON = "Write a function: `python: checks.py:NAME`"
_JUDGED = "The judge of kindlm has other instructions, and scores from 0 to 1: 0.7 passes"
_TRACED = "kindlm sees tool calls by models, and by agents that report them"

TWINS: dict[str, Twin] = {
    "equals": Twin(
        "`output.equals`, or `output.schema` with `const` for JSON",
        "`output.notRegex`",
        _equals,
        "kindlm ignores white space around the answer",
    ),
    "contains": Twin("`output.regex`, since case matters", "`output.notRegex`", _contains),
    "icontains": Twin("`output.contains`", "`output.notRegex` with `(?i)`", _contains),
    "contains-any": Twin("`output.regex`", "`output.notRegex`", _contains_any),
    "icontains-any": Twin("`output.containsAny`", "`output.notRegex`", _contains_any),
    "contains-all": Twin("`output.regex`", "", _contains_all),
    "icontains-all": Twin("`output.contains`", "", _contains_all),
    "starts-with": Twin("`output.regex` with `\\A`", "`output.notRegex`", _starts_with),
    "regex": Twin(
        "`output.regex`",
        "`output.notRegex`",
        _regex,
        r"In Python, `\d`, `\w` and `\b` know all alphabets, and `$` also matches before a last"
        " line break",
    ),
    "is-json": Twin(
        "`output.schema`", "", _is_json, "kindlm also accepts JSON inside a code fence"
    ),
    "cost": Twin("`costUsd`", "", _cost),
    "latency": Twin("`latencyMs`", "", _latency),
    "llm-rubric": Twin("`judge`", "", _rubric, _JUDGED),
    "model-graded-closedqa": Twin("`judge`", "", _rubric, _JUDGED),
    "g-eval": Twin("`judge`", "", _g_eval, _JUDGED),
    "factuality": Twin("`judge`", "", _factuality, _JUDGED),
    "answer-relevance": Twin(
        "`judge: relevant`", "", _relevance, "A judge decides, where promptfoo compares embeddings"
    ),
    "context-faithfulness": Twin("`judge: faithful` with `context`", "", _faithfulness, _JUDGED),
    "similar": Twin(
        "`output.similarTo`",
        "",
        _similar,
        "The embeddings are those of kindlm, so the same threshold may mean something else",
    ),
    "tool-call-f1": Twin("`toolCalls` and `trajectory`, with the threshold 1", "", _tool_call_f1),
    "trajectory:tool-used": Twin("`toolCalls`", "`shouldNotCall`", _tool_used, _TRACED),
    "trajectory:tool-args-match": Twin(
        "`toolCalls` with `argsMatch`", "`shouldNotCall`", _tool_args, _TRACED
    ),
    "trajectory:tool-sequence": Twin("`trajectory`", "", _tool_sequence, _TRACED),
    "trajectory:goal-success": Twin("`judge`", "", _goal, _JUDGED),
}
"""The types with a twin."""

TWINS["similar:cosine"] = TWINS["similar"]


def _each(names: str, instead: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), instead)


NO_TWIN: dict[str, str] = {
    **_each("javascript python ruby webhook", f"kindlm runs no code to import. {_PYTHON}"),
    **_each("bleu gleu meteor rouge-n levenshtein word-count contains-html contains-sql", _PYTHON),
    **_each("contains-xml is-html is-sql is-xml", _PYTHON),
    "contains-json": "Write `output.schema` if the whole answer is JSON, or a function",
    **_each(
        "is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call",
        "Write `toolCalls`; with results for the tools, `strictTools` checks all arguments",
    ),
    **_each("perplexity perplexity-score", "kindlm reads no log probabilities"),
    **_each("moderation guardrails classifier", "Write `judge: safe`"),
    **_each(
        "is-refusal pi conversation-relevance agent-rubric search-rubric research-rubric"
        " video-rubric similar:dot similar:euclidean",
        "Write a `judge` with a criterion",
    ),
    **_each("context-recall context-relevance", "It rates the context, and not the answer"),
    **_each("select-best max-score", "Compare two runs: `kindlm diff`"),
    "finish-reason": "Truncated answers have a warning in every run",
    **_each(
        "trace-span-count trace-span-duration trace-error-spans skill-used trajectory:step-count",
        "Write `toolCalls` or `trajectory`",
    ),
}
"""The types without a twin, and what to do instead."""

_CHANGES = ("transform", "contextTransform", "normalizeUnicode")
"""Keys that change what an assertion looks at."""

READ_KEYS = {"type", "value", "threshold", "weight", "provider", "description", "assert", *_CHANGES}
"""The keys of an assertion that kindlm reads."""

OTHER_ASSERTION_KEYS = {
    "metric": "kindlm reports each check by itself",
    "rubricPrompt": "The judge of kindlm has its own instructions",
}
"""Other keys of an assertion, and what to do instead."""


def add_assertion(
    part: Part,
    files: Files,
    variables: Variables,
    grader: Callable[[], str | None],
    checks: Checks,
) -> str:
    """Add the twin of an assertion to the checks of a test; return what is different about it.

    Raises:
        NoTwinError: It has none.
    """
    written = part.text("type") or ""
    negated = written.startswith("not-")
    kind = written.removeprefix("not-")
    twin = TWINS.get(kind)
    if twin is None:
        instead = NO_TWIN.get(kind, "kindlm does not know it. " + _PYTHON)
        raise NoTwinError(f"the assertion `{written}`", instead)
    if negated and not twin.negated:
        raise NoTwinError(f"the assertion `{written}`", "Write the check the other way round")
    for key in part.entries():
        if key in _CHANGES:
            raise NoTwinError(f"the assertion `{written}` with `{key}`", _PYTHON)
    value = variables.fill(file_value(part.value.get("value"), files))
    it = Assertion(kind, negated, value, part.number("threshold"), variables, grader)
    matters = twin.make(it, checks)
    return "" if matters is False else twin.different
