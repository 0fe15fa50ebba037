"""Where kindlm does otherwise than cases of scenarios expect, as rules: the departures table.

`docs/contributing/departures.md` is made of it. Each rule says by the input and the expected values
of a case whether it is about it, and what kindlm does instead, which the test of the case is held
to.
"""

from __future__ import annotations

import json
from typing import Any, Final

from vector_cases import Departure

Case = dict[str, Any]

_ASKED_AGAIN: Final = (
    "kindlm asks once more after an unusable judgement; after that, the check is undecided and "
    "the execution errored"
)
_UNDECIDED: Final = {"outcome": "inconclusive", "judge_calls": 2, "passed": False, "reasoning": ...}
_NO_CODE: Final = "the model writes no code: kindlm fills its texts into a template as data"
NO_TREES: Final = "kindlm reads no source code: you describe the agent, or kindlm asks it"
_WORDS: Final = "`latest` and `previous` refer to runs, whatever their labels"


def _reply(case: Case) -> Any:
    """Return what a judge replies, as the JSON object that it is; another reply raises."""
    read = json.loads(case["input"]["judge_reply"])
    if not isinstance(read, dict):
        raise TypeError
    return read


def _is_object(case: Case) -> bool:
    try:
        _reply(case)
    except (TypeError, ValueError):
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_DECISIONS: Final = {
    "assert.sentiment": "matches",
    "assert.guardrail": "passed",
    "assert.factuality": "factual",
}
"""What a judge decides, by its name there."""


def _decision(case: Case) -> bool:
    return bool(_reply(case)[_DECISIONS[case["area"]]])


def _is_asked(case: Case) -> bool:
    return "judge_reply" in case["input"] and case["area"] != "assert.custom"


CHECKS: Final = (
    Departure(
        "an empty text in a check is an error, because every answer contains it",
        lambda case: (
            case["area"] in ("assert.contains", "assert.notContains") and not case["input"]["arg"]
        ),
        {"passed": ..., "error": "the text of a check is empty"},
    ),
    Departure(
        "the check is undecided if the agent reports no tokens",
        lambda case: (
            case["area"] == "assert.tokenUsage" and "tokenUsage" not in case["input"]["response"]
        ),
        {"passed": False, "outcome": "inconclusive"},
    ),
    Departure(
        "kindlm asks a failed judge once more; after that, the check is undecided and the "
        "execution errored",
        lambda case: _is_asked(case) and isinstance(case["input"]["judge_reply"], dict),
        _UNDECIDED,
    ),
    Departure(
        _ASKED_AGAIN,
        lambda case: (
            _is_asked(case)
            and isinstance(case["input"]["judge_reply"], str)
            and not _is_object(case)
        ),
        _UNDECIDED,
    ),
    Departure(
        f"a score must be a number; {_ASKED_AGAIN}",
        lambda case: case["area"] == "assert.llmJudge" and not _is_number(_reply(case)["score"]),
        _UNDECIDED,
    ),
    Departure(
        f"a score must be on its scale; {_ASKED_AGAIN}",
        lambda case: (
            case["area"] == "assert.llmJudge"
            and _is_number(_reply(case)["score"])
            and not 0 <= _reply(case)["score"] <= 5
        ),
        _UNDECIDED,
    ),
    Departure(
        "the judge's decision counts",
        lambda case: _decision(case) != case["expected"]["passed"],
        lambda case: {"passed": _decision(case)},
    ),
    Departure(
        "a check of your own that raises is undecided, and the execution is errored",
        lambda case: str(case["input"]["arg"]["returns"]).startswith("throws"),
        {"outcome": "inconclusive"},
    ),
)


def _calls(case: Case) -> list[Case]:
    found: list[Case] = case["input"]["body"]["tool_calls"]
    return found


def _nested_calls(case: Case) -> list[Case]:
    message = case["input"]["body"]["choices"][0]["message"]
    return [
        {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
        for call in message["tool_calls"]
    ]


def _with_json_arguments(case: Case) -> list[Case]:
    told = case["expected"]["toolCalls"]
    return [
        {**one, "arguments": json.loads(call["arguments"])}
        if isinstance(call.get("arguments"), str)
        else one
        for one, call in zip(told, _calls(case), strict=True)
    ]


_SPELT: Final = {"input_tokens": "input", "output_tokens": "output"}


def _usage(case: Case) -> Case:
    usage = case["input"]["body"]["usage"]
    return {"input": usage["input_tokens"], "output": usage["output_tokens"],
            "total": usage["input_tokens"] + usage["output_tokens"]}  # fmt: skip


def _sent_once(bodies: list[Case]) -> list[Case]:
    """Return requests without what is sent twice, one directly after the other."""
    return [
        {
            **body,
            "messages": [
                message
                for at, message in enumerate(body["messages"])
                if not at or message != body["messages"][at - 1]
            ],
        }
        for body in bodies
    ]


def _is_dump(case: Case) -> bool:
    """Tell whether the text of an answer is all of its JSON, as it is written."""
    body, told = case["input"]["body"], case["expected"].get("text")
    return not isinstance(body, str) and told == json.dumps(body, separators=(",", ":"))


_REFUSED: Final = {"raises": True, "text": ..., "toolCalls": ..., "tokenUsage": ...}

AGENTS: Final = (
    Departure(
        "an answer that kindlm does not understand is an error; the text is not its dump",
        _is_dump,
        {**_REFUSED, "mentions": ["an answer that cannot be used"]},
    ),
    Departure(
        "arguments may be a string of JSON",
        lambda case: any(isinstance(call.get("arguments"), str) for call in _calls(case)),
        lambda case: {"toolCalls": _with_json_arguments(case)},
    ),
    Departure(
        "kindlm also reads tool calls where OpenAI has them",
        lambda case: bool(_nested_calls(case)),
        lambda case: {"toolCalls": _nested_calls(case)},
    ),
    Departure(
        "kindlm reads the usage under either spelling",
        lambda case: _SPELT.keys() <= case["input"]["body"]["usage"].keys(),
        lambda case: {"tokenUsage": _usage(case)},
    ),
    Departure(
        "kindlm does not change a text",
        lambda case: (
            case["input"]["content_type"].startswith("text/plain")
            and not case["expected"].get("raises")
        ),
        lambda case: {"text": case["input"]["body"]},
    ),
    Departure(
        "latency is the time until the whole answer arrived",
        lambda case: case["expected"]["measured_is_time_to_headers"],
        {"measured_is_time_to_headers": False},
    ),
    Departure(
        "kindlm sends a message once",
        lambda case: case["area"] == "runner+adapter.http",
        lambda case: {"bodies": _sent_once(case["expected"]["bodies"])},
    ),
)


TRIALS: Final = (
    Departure(
        "the execution is errored if the agent fails or does not answer in time; an undecided "
        "score is null",
        lambda case: (
            "adapter raises" in case["input"]["steps"][0] and not case["expected"]["assertions"]
        ),
        {"score": None, "status": "errored"},
    ),
    Departure(
        "each check belongs to its trial",
        lambda case: bool(case["expected"]["results"]) and case["area"] == "runner.parallel",
        lambda case: {"results": [[one[0], True, 1, None] for one in case["expected"]["results"]]},
    ),
    Departure(
        "a trial begins as soon as another trial ends",
        lambda case: case["expected"]["scheduling"] == "fixed batches",
        {
            "order": [
                ["start", "A"],
                ["start", "B"],
                ["end", "B"],
                ["start", "C"],
                ["end", "C"],
                ["end", "A"],
            ],
            "scheduling": "a pool",
        },
    ),
    Departure(
        "kindlm records scores",
        lambda case: not case["expected"]["score_recorded_in_result"],
        {"score_recorded_in_result": True},
    ),
)


TITLES: Final = ("Refund flow", "dflt", "four", "named", "two-a", "two-b", "x1", "x2")
"""What the scenarios are called that stand in the files of the cases."""

FOUND: Final = (
    Departure(
        "kindlm finds YAML files and all functions of a file",
        lambda case: bool(case["input"]["files"]),
        {"scenarios": list(TITLES)},
    ),
    Departure(
        "you can also select tests by their names",
        lambda case: any(case["input"]["filter"] in title for title in TITLES),
        lambda case: {"scenarios": [title for title in TITLES if case["input"]["filter"] in title]},
    ),
    Departure(
        "you select tests by their path in the project; a selection without a test is an error",
        lambda case: "parent" in case["input"]["filter"],
        {"scenarios": []},
    ),
)


def _limit(case: Case) -> float:
    return float(case["input"].get("threshold", 0.05))


def _changed(case: Case, of: str, *, status: str, **values: Any) -> Case:
    """Return a comparison in which scenarios of one status have another one."""
    told = [
        {**one, "status": status} if _is(of, one, _limit(case)) else one
        for one in case["expected"]["scenarios"]
    ]
    counts = {"regressions": "regression", "improvements": "improvement", "stable": "stable",
              "added": "added", "removed": "removed"}  # fmt: skip
    statuses = [one["status"] for one in told]
    summary = {"total": len(told), **{name: statuses.count(word) for name, word in counts.items()}}
    return {"scenarios": told, "summary": summary, **values}


def _is(of: str, one: Case, limit: float) -> bool:
    """Tell whether a scenario is a drop of a kind."""
    delta, flipped = one["scoreDelta"], one["passFlipped"]
    if delta is None:
        return False
    if of == "at the threshold":
        return one["status"] == "regression" and not flipped and abs(delta + limit) < 1e-9
    return one["status"] == "improvement" and flipped and delta < -limit


def _has(of: str, case: Case) -> bool:
    return any(_is(of, one, _limit(case)) for one in case["expected"]["scenarios"])


def _is_sure(case: Case) -> bool:
    """Tell whether a test fails that passed before: that, one sample shows."""
    before = {name: passed for name, passed, _ in case["input"]["before"]}
    return any(before.get(name) and not passed for name, passed, _ in case["input"]["after"])


def is_twice(case: Case) -> bool:
    """Tell whether a title stands twice on a side of a comparison."""
    return case["area"] == "diff" and any(
        len({name for name, *_ in case["input"][side]}) < len(case["input"][side])
        for side in ("before", "after")
    )


def _by_function(case: Case) -> Case:
    """Return the comparison of scenarios that are known by their places, not by their titles."""
    before, after = case["input"]["before"], case["input"]["after"]
    told = []
    for at in range(max(len(before), len(after))):
        one: Case = {"scenario": f"test_{at}", "scoreDelta": None, "passFlipped": None}
        if at >= len(after):
            one["status"] = "removed"
        elif at >= len(before):
            one["status"] = "added"
        else:
            delta = int(after[at][1]) - int(before[at][1])
            status = {-1: "regression", 0: "stable", 1: "improvement"}[delta]
            one |= {"status": status, "scoreDelta": delta, "passFlipped": bool(delta)}
        told.append(one)
    fails = any(one["status"] in {"regression", "removed"} for one in told)
    made = _changed({**case, "expected": {"scenarios": told}}, "none", status="")
    return {**made, "hasRegressions": fails}


COMPARED: Final = (
    Departure(
        "kindlm identifies a test by its file, function and case, so two tests may have one "
        "title; a removed test is listed and fails the comparison",
        is_twice,
        _by_function,
    ),
    Departure(
        "a score that differs from the threshold only by rounding counts as equal to it",
        lambda case: not is_twice(case) and _has("at the threshold", case),
        lambda case: _changed(case, "at the threshold", status="stable"),
    ),
    Departure(
        "a lower score is a suspected regression, even if the test passes now",
        lambda case: not is_twice(case) and _has("while it passes now", case),
        lambda case: _changed(case, "while it passes now", status="regression"),
    ),
    Departure(
        "a lower score in a single sample is only a suspected regression, which fails `kindlm "
        "diff --fail-on any`",
        lambda case: case["area"] == "diff" and not is_twice(case) and not _is_sure(case),
        {"hasRegressions": False},
    ),
    Departure(
        "a removed test fails the comparison",
        lambda case: not is_twice(case) and case["expected"]["summary"]["removed"] > 0,
        {"hasRegressions": True},
    ),
)


def _sums(case: Case) -> Case:
    results = [passed for _, passed, *_ in case["input"]["results"]]
    numbers = {
        "total": len(results), "passed": results.count(True), "failed": results.count(False)
    }  # fmt: skip
    return {
        "top_keys": ["schemaVersion", "kindlm", "run", "summary", "gates", "tests", "errors"],
        "summary": {**numbers, "avgScore": None, "totalDuration": None},
    }


REPORTS: Final = (
    Departure(
        "each execution has its latency and the scores of its checks, without a sum",
        lambda case: bool(case["input"]["results"]),
        _sums,
    ),
    Departure(
        "a run without tests is an error and has no report",
        lambda case: case["input"]["results"] == [],
        {"summary": None},
    ),
    Departure(
        "the page holds only what it shows, all of it escaped",
        lambda case: case["area"] == "report.html",
        {"raw_script_breakout_in_embedded_json": False, "tool_name_escaped": True},
    ),
    Departure(
        "the list shows how many repeats of each test passed, with whole names; an errored test "
        "is shown as errored, without a score",
        lambda case: case["area"] == "report.terminal",
        {
            "columns": [],
            "score_cells": [False, False],
            "errored_scenario_score_cell": None,
            "errored_assertion_cell": None,
            "name_truncated_to": None,
            "summary_counts": {"total": 3, "passed": 1, "failed": 1, "errored": 1},
        },
    ),
)


def _option(case: Case, name: str) -> str | None:
    """Return the value of an option in a command line, empty at its end."""
    arguments = case["input"]["argv"]
    if name not in arguments:
        return None
    return str([*arguments, ""][arguments.index(name) + 1])


GENERATED: Final = (
    Departure(
        _NO_CODE,
        lambda case: case["area"] == "gen.write",
        {"file": "test_tone_s1.py", "code": ""},
    ),
    Departure(
        "an unreadable profile is an error; kindlm reads the whole system prompt",
        lambda case: (
            case["area"] == "discover.extract" and not _is_json(case["input"]["llm_reply"])
        ),
        lambda case: {
            "chars_sent": case["input"]["file_chars"],
            "tools": None,
            "constraints": None,
        },
    ),
    Departure(
        f"{NO_TREES}: `--agent` overrides the agent of the configuration",
        lambda case: "precedence" in case["expected"],
        {"precedence": ["--agent", "config.agent.url"]},
    ),
    Departure(
        "kindlm creates the profile anew each time; the file is for people",
        lambda case: case["expected"]["reuses_cached_profile"] or case["expected"]["warning"],
        {"warning": False, "reuses_cached_profile": False},
    ),
    Departure(
        "kindlm reads the system prompt",
        lambda case: (
            _option(case, "--system-prompt") is not None and not case["expected"]["file_read"]
        ),
        {"file_read": True},
    ),
    Departure(
        "kindlm installs nothing, so it need not know the package manager",
        lambda case: "package_manager" in case["expected"],
        {"package_manager": []},
    ),
)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


COMMANDS: Final = (
    Departure(
        "a run with a failing test exits with 1",
        lambda case: not case["input"]["outcome"].endswith(", 0 failed"),
        {"exit_code": 1},
    ),
    Departure(
        "`--format` (`--reporter`) selects the report on standard output",
        lambda case: _option(case, "--format") == "json",
        {"stdout_is_json": True},
    ),
    Departure(
        "after the command, `--version` is an alias of `--label`",
        lambda case: bool(_option(case, "--version")),
        lambda case: {
            "prints": f"the report of the run {_option(case, '--version')}",
            "tests_run": 1,
        },
    ),
    Departure(
        "kindlm creates the history before any call",
        lambda case: case["input"][".fabrik directory"] == "missing",
        {"raises": False, "recorded": 1},
    ),
    Departure(
        "models of Ollama can be judges",
        lambda case: case["input"]["config"]["llm"]["provider"] == "ollama",
        {"warning": False, "llm_assertions": "all pass"},
    ),
    Departure(
        "agents may be programs",
        lambda case: case["input"]["config"]["agent"]["type"] == "subprocess",
        {"raises": False},
    ),
    Departure(
        "the threshold of the configuration applies",
        lambda case: (
            -case["input"]["scoreDelta"] < case["input"]["config.diff.regressionThreshold"]
        ),
        {"status": "stable", "exit_code": 0},
    ),
    Departure(
        "`--format json` writes only JSON to standard output",
        lambda case: "--json" in case["input"]["argv"],
        {"stdout_is_json": True},
    ),
    Departure(
        "kindlm refuses a time that is not a number before it runs anything. If the agent exceeds "
        "its timeout, the execution is errored, not failed",
        lambda case: not (_option(case, "--timeout") or "0").isdigit(),
        {"all_time_out": False, "status_of_a_timeout": "errored"},
    ),
    Departure(
        "kindlm refuses a concurrency below 1 before it runs anything",
        lambda case: int(_option(case, "--parallel") or 1) < 1,
        {"scenarios_run": 0, "sequential": None},
    ),
)


def _labels(case: Case) -> tuple[str, str]:
    """Return the labels of the last two runs, the older one first."""
    (before, _), (after, _) = case["input"]["saves"][-2:]
    return before, after


LABELS: Final = (
    Departure(
        _WORDS,
        lambda case: case["input"]["resolve"] == ["latest", "previous"],
        lambda case: {"latest": _labels(case)[1], "previous": _labels(case)[0]},
    ),
    Departure(
        _WORDS,
        lambda case: case["input"]["resolve"] == "previous" and len(case["input"]["saves"]) > 1,
        lambda case: {"raises": False, "previous": case["input"]["saves"][-2][1]},
    ),
)

DEPARTURES: Final = (
    *CHECKS, *AGENTS, *TRIALS, *FOUND, *COMPARED, *REPORTS, *GENERATED, *COMMANDS, *LABELS,
)  # fmt: skip
