"""Translates assertions of promptfoo into checks of kindlm."""

from __future__ import annotations

from functools import partial
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err
from kindlm.generate.imported_tests import (
    EMBEDDED,
    JUDGED,
    PYTHON,
    STRIPPED,
    Checks,
    Equivalent,
    pattern_of,
)
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, read_part
from kindlm.generate.suites.promptfoo.texts import Variables, file_value, text_of


@dataclass(frozen=True, slots=True)
class Assertion:
    """An assertion of a test: its type without `not-`, and its value with variables filled in.

    `grader` is the id of its own grading model.
    """

    type: str
    negated: bool
    value: Any
    threshold: float | None
    variables: Variables
    grader: str | None

    @property
    def text(self) -> str:
        """The value as a text; raises `LeftOutError` if it is none."""
        if isinstance(self.value, bool | dict | list) or self.value in (None, ""):
            raise self.unusual("its value is not text")
        return text_of(self.value)

    @property
    def texts(self) -> list[str]:
        """The value as a list of texts, also if it is one text with commas."""
        if isinstance(self.value, str):
            if '"' in self.value:
                raise self.unusual("its value has quotation marks: write it as a list")
            return [each.strip() for each in self.value.split(",") if each.strip()]
        if not isinstance(self.value, list) or not self.value:
            raise self.unusual("its value is not a list of texts")
        return [text_of(each) for each in self.value]

    @property
    def ignores_case(self) -> bool:
        """Whether upper and lower case are equal."""
        return self.type.startswith("icontains")

    def unusual(self, why: str) -> LeftOutError:
        """Return the error of an assertion without an equivalent."""
        return LeftOutError(f"the assertion `{'not-' * self.negated}{self.type}`, since {why}")


def _equals(it: Assertion, checks: Checks) -> None:
    if not isinstance(it.value, dict | list):
        checks.add_equal("" if it.value == "" else it.text, negated=it.negated)
    elif it.negated:
        raise it.unusual("its value is JSON")
    else:
        checks.add_schema({"const": it.value})


def _contains(it: Assertion, checks: Checks) -> None:
    checks.add_text(it.text, ignores_case=it.ignores_case, negated=it.negated)


def _contains_any(it: Assertion, checks: Checks) -> None:
    checks.add_text(*it.texts, ignores_case=it.ignores_case, negated=it.negated)


def _contains_all(it: Assertion, checks: Checks) -> None:
    for text in it.texts:
        checks.add_text(text, ignores_case=it.ignores_case)


def _starts_with(it: Assertion, checks: Checks) -> None:
    checks.add_pattern(rf"\A{pattern_of(it.text)}", negated=it.negated)


def _regex(it: Assertion, checks: Checks) -> None:
    if "{," in it.text:
        raise it.unusual("`{,` is a text in JavaScript, and a repeat in Python")
    checks.add_pattern(it.text, negated=it.negated)


def _is_json(it: Assertion, checks: Checks) -> None:
    schema = it.value
    if isinstance(schema, str) and schema:
        read = read_part("schema.yaml", schema.encode())
        schema = None if isinstance(read, Err) else read.value.value
    checks.add_schema({} if it.value in (None, "", True) else schema)


def _limit(section: str, it: Assertion, checks: Checks) -> None:
    if it.threshold is None or it.threshold <= 0:
        raise it.unusual("it has no threshold above 0")
    checks.others[section] = min(it.threshold, checks.others.get(section, it.threshold))


def _scored(it: Assertion) -> dict[str, Any]:
    if it.threshold is not None and not 0 < it.threshold <= 1:
        raise it.unusual("its threshold is not above 0, and at most 1")
    given = {"minScore": it.threshold, "model": it.grader}
    return {key: value for key, value in given.items() if value is not None}


def _judge(asked: str, it: Assertion, checks: Checks) -> None:
    """Add a judge for each value, which replaces `{}` in the criterion `asked`."""
    value = it.value.get("goal") if isinstance(it.value, dict) else it.value
    texts = [text_of(each) for each in (value if isinstance(value, list) else [value])]
    if not texts or not all(text.strip() for text in texts):
        raise it.unusual("it has no criterion")
    scored = _scored(it)
    checks.add("judge", *({"criteria": asked.replace("{}", text)} | scored for text in texts))


def _relevant(it: Assertion, checks: Checks) -> None:
    checks.add("judge", {"ready": "relevant"} | _scored(it))


def _faithful(it: Assertion, checks: Checks) -> None:
    context = it.variables.text("context")
    if not context.strip():
        raise it.unusual("there is no variable `context`")
    checks.add("judge", {"ready": "faithful", "context": context} | _scored(it))


def _similar(it: Assertion, checks: Checks) -> None:
    checks.add_similar(it.text, 0.75 if it.threshold is None else it.threshold)


def _name_of(it: Assertion, value: Any) -> str:
    """Return the name of a tool: a text, or a mapping with `name`."""
    name = value.get("name") or value.get("pattern") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name or "*" in name or "?" in name:
        raise it.unusual(f"{excerpt_of(name)} is not the whole name of a tool")
    return name


def _tool_used(it: Assertion, checks: Checks) -> None:
    if isinstance(it.value, dict) and it.value.keys() - {"name", "pattern"}:
        raise it.unusual("it is more than `name`")
    values = it.value if isinstance(it.value, list) else [it.value]
    more = {"shouldNotCall": True} if it.negated else {}
    checks.add("toolCalls", *({"tool": _name_of(it, value)} | more for value in values))


def _tool_args(it: Assertion, checks: Checks) -> None:
    value = it.value if isinstance(it.value, dict) else {}
    arguments = value.get("args", value.get("arguments"))
    if not isinstance(arguments, dict) or value.keys() - {"name", "args", "arguments", "mode"}:
        raise it.unusual("it is more than `args`")
    if value.get("mode", "partial") != "partial":
        raise it.unusual("kindlm compares the named arguments: write `argsSchema`")
    more = {"shouldNotCall": True} if it.negated else {}
    checks.add("toolCalls", {"tool": _name_of(it, value), "argsMatch": arguments} | more)


def _tool_sequence(it: Assertion, checks: Checks) -> None:
    value = it.value if isinstance(it.value, dict) else {"steps": it.value}
    steps = value.get("steps")
    if not isinstance(steps, list) or not steps or "trajectory" in checks.others:
        raise it.unusual("it has no steps, or is a second one")
    mode = "strict" if value.get("mode") == "exact" else "in-order"
    calls = [{"tool": _name_of(it, step)} for step in steps]
    checks.others["trajectory"] = {"mode": mode, "calls": calls}


_NOT = "`output.notRegex`"
_TRACED = "kindlm sees tool calls by models, and by agents that report them"

EQUIVALENTS: dict[str, Equivalent] = {
    "equals": Equivalent("`output.equals`, or `schema` for JSON", _equals, STRIPPED, negated=_NOT),
    "contains": Equivalent("`output.regex`, since case matters", _contains, negated=_NOT),
    "icontains": Equivalent("`output.contains`", _contains, negated=_NOT),
    "contains-any": Equivalent("`output.regex`", _contains_any, negated=_NOT),
    "icontains-any": Equivalent("`output.containsAny`", _contains_any, negated=_NOT),
    "contains-all": Equivalent("`output.regex`", _contains_all),
    "icontains-all": Equivalent("`output.contains`", _contains_all),
    "starts-with": Equivalent("`output.regex` with `\\A`", _starts_with, negated=_NOT),
    "regex": Equivalent(
        "`output.regex`",
        _regex,
        r"In Python, `\d`, `\w` and `\b` know all alphabets, and `$` also matches before a last"
        " line break",
        negated=_NOT,
    ),
    "is-json": Equivalent("`output.schema`", _is_json, "kindlm also accepts JSON in a code fence"),
    "cost": Equivalent("`costUsd`", partial(_limit, "costUsd")),
    "latency": Equivalent("`latencyMs`", partial(_limit, "latencyMs")),
    "llm-rubric": Equivalent("`judge`", partial(_judge, "{}"), JUDGED),
    "model-graded-closedqa": Equivalent("`judge`", partial(_judge, "{}"), JUDGED),
    "g-eval": Equivalent("`judge`", partial(_judge, "{}"), JUDGED),
    "factuality": Equivalent(
        "`judge`", partial(_judge, "The answer agrees with these facts: {}"), JUDGED
    ),
    "answer-relevance": Equivalent("`judge: relevant`", _relevant, JUDGED),
    "context-faithfulness": Equivalent("`judge: faithful` with `context`", _faithful, JUDGED),
    "similar": Equivalent("`output.similarTo`", _similar, EMBEDDED),
    "trajectory:tool-used": Equivalent(
        "`toolCalls`", _tool_used, _TRACED, negated="`shouldNotCall`"
    ),
    "trajectory:tool-args-match": Equivalent(
        "`toolCalls` with `argsMatch`", _tool_args, _TRACED, negated="`shouldNotCall`"
    ),
    "trajectory:tool-sequence": Equivalent("`trajectory`", _tool_sequence, _TRACED),
    "trajectory:goal-success": Equivalent(
        "`judge`", partial(_judge, "The agent achieved this goal: {}"), JUDGED
    ),
}
"""The types of assertions with an equivalent."""

_HARMLESS = {"type", "value", "threshold", "weight", "provider", "description", "metric"}


def add_assertion(
    part: Part, files: Files, variables: Variables, grader: str | None, checks: Checks
) -> str:
    """Add the equivalent of an assertion to the checks of a test; return how it differs.

    Raises:
        LeftOutError: it has no equivalent.
    """
    if part.get("$ref") is not None:
        raise LeftOutError("an assertion with `$ref`", "Write the assertion out")
    written = part.text("type")
    if not written:
        raise LeftOutError("an assertion without a `type`", "Write its `type` and `value`")
    kind = written.removeprefix("not-")
    equivalent = EQUIVALENTS.get(kind)
    if equivalent is None or (kind != written and not equivalent.negated):
        raise LeftOutError(f"the assertion `{written}`", PYTHON)
    changes = sorted(str(key) for key in part.entries().keys() - _HARMLESS)
    if changes:
        raise LeftOutError(f"the assertion `{written}` with `{changes[0]}`", PYTHON)
    if part.number("weight") == 0:
        raise LeftOutError("an assertion of weight 0", "It cannot fail")
    value = variables.fill(file_value(part.value.get("value"), files))
    threshold = part.number("threshold")
    equivalent.make(Assertion(kind, kind != written, value, threshold, variables, grader), checks)
    return equivalent.different
