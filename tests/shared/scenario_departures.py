"""Where kindlm does otherwise than the cases of scenarios expect, with why: the departures table.

`docs/departures.md` is made of it. Each value here is held by the test of its case, in place of the
value that the case has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["DEPARTURES", "Departure", "scenario_vectors"]

_FILE: Final = Path(__file__).parents[1] / "vectors" / "data" / "scenario.jsonl"


@dataclass(frozen=True, slots=True)
class Departure:
    """What kindlm does, and what stands for it in the case's `expected`, by its names.

    Names that the case does not have tell more of what kindlm does. Without any values there is
    nothing of the kind in kindlm, and no test.
    """

    rule: str
    ours: Mapping[str, Any] = field(default_factory=dict)

    def of(self, vector: dict[str, Any]) -> dict[str, Any]:
        """Return the case with what kindlm is expected to do."""
        return vector | {"expected": vector["expected"] | dict(self.ours)}


def scenario_vectors() -> Iterator[dict[str, Any]]:
    """Yield the cases of the repository."""
    for line in _FILE.read_text("utf-8").split("\n"):
        if line:
            yield json.loads(line)


_ASKED_AGAIN: Final = (
    "what is no judgement is asked for once more; after that nothing is decided, and the execution "
    "is errored"
)
_UNDECIDED: Final = {"outcome": "inconclusive", "judge_calls": 2}
_DOES_NOT_PASS: Final = {**_UNDECIDED, "passed": False, "reasoning": None}
_TEXT: Final = "a text is kept as it is"
_NO_CODE: Final = "the model writes no code: files are made of a template, with its texts as data"
_NO_TREES: Final = "no source trees are read: what an agent is for is told, or asked"
_SUSPECTED: Final = (
    "a score that dropped is a regression, but in one sample only a suspected one: it fails "
    "`kindlm diff --fail-on any`"
)
_NO_SUMS: Final = "each execution has its latency and the scores of its checks; they are not summed"
_WORDS: Final = "`latest` and `previous` are about runs, whatever their labels"


def _sums(total: int, passed: int) -> dict[str, Any]:
    numbers = {"total": total, "passed": passed, "failed": total - passed}
    return {**numbers, "avgScore": None, "totalDuration": None}


def _sent(*said: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text} for role, text in said]}


DEPARTURES: Final[Mapping[str, Departure]] = {
    "fab-assert-021": Departure(
        "tokens that were not reported are not taken for none: nothing is decided",
        {"passed": False, "outcome": "inconclusive"},
    ),
    "fab-judge-005": Departure(_ASKED_AGAIN, _UNDECIDED),
    "fab-judge-006": Departure(f"a score is a number; {_ASKED_AGAIN}", _DOES_NOT_PASS),
    "fab-judge-007": Departure(f"a score is on its scale; {_ASKED_AGAIN}", _DOES_NOT_PASS),
    "fab-judge-008": Departure(
        "a judge that fails is asked once more; after that nothing is decided, and the execution "
        "is errored",
        _UNDECIDED,
    ),
    "fab-judge-015": Departure(_ASKED_AGAIN, _UNDECIDED),
    "fab-judge-017": Departure("what the judge decides is what counts", {"passed": False}),
    "fab-judge-021": Departure(
        "a check of your own that raises decides nothing, and the execution is errored",
        {"outcome": "inconclusive"},
    ),
    "fab-http-020": Departure(
        "arguments may be JSON text", {"toolCalls": [{"name": "t1", "arguments": {"x": 1}}]}
    ),
    "fab-http-021": Departure(
        "tool calls are read where OpenAI has them, too",
        {"toolCalls": [{"name": "t1", "arguments": {}}]},
    ),
    "fab-http-023": Departure(
        "usage is read under either spelling",
        {"tokenUsage": {"input": 5, "output": 6, "total": 11}},
    ),
    "fab-http-033": Departure(_TEXT, {"text": "line one\n\n   line two\n"}),
    "fab-http-034": Departure(_TEXT, {"text": "Options:\n1: red\n2: blue\n"}),
    "fab-http-038": Departure(
        "latency is the time until the whole answer was there",
        {"measured_is_time_to_headers": False},
    ),
    "fab-run-004": Departure(
        "an error of the agent makes the execution errored, and so does an agent that does not "
        "answer in time; a score that was not decided is null",
        {"score": None, "status": "errored"},
    ),
    "fab-run-014": Departure(
        "a message is sent once",
        {
            "bodies": [
                _sent(("user", "one")),
                _sent(("user", "one"), ("assistant", "ok"), ("user", "two")),
            ]
        },
    ),
    "fab-run-015": Departure(
        "checks belong to their trial", {"results": [["A", True, 1, None], ["B", True, 1, None]]}
    ),
    "fab-run-016": Departure(
        "a trial begins as soon as another one ends",
        {
            "order": [
                ["start", "A"],
                ["start", "B"],
                ["end", "B"],
                ["start", "C"],
                ["end", "C"],
                ["end", "A"],
            ]
        },
    ),
    "fab-run-018": Departure("scores are recorded", {"score_recorded_in_result": True}),
    "fab-load-001": Departure(
        "YAML files and all functions of a file are found",
        {"scenarios": ["Refund flow", "dflt", "four", "named", "two-a", "two-b", "x1", "x2"]},
    ),
    "fab-load-003": Departure(
        "tests are selected by their names, too", {"scenarios": ["Refund flow"]}
    ),
    "fab-load-004": Departure(
        "tests are selected by their path in the project, and a selection that nothing fits is an "
        "error",
        {"scenarios": []},
    ),
    "fab-diff-004": Departure(_SUSPECTED, {"hasRegressions": False}),
    "fab-diff-007": Departure(
        "what differs from the threshold by rounding alone is on it",
        {
            "scenarios": [
                {
                    "scenario": "s",
                    "status": "stable",
                    "scoreDelta": -0.050000000000000044,
                    "passFlipped": False,
                }
            ],
            "summary": {
                "total": 1,
                "regressions": 0,
                "improvements": 0,
                "stable": 1,
                "added": 0,
                "removed": 0,
            },
            "hasRegressions": False,
        },
    ),
    "fab-diff-010": Departure(
        "a score that dropped is a suspected regression although the test passes now",
        {
            "scenarios": [
                {"scenario": "s", "status": "regression", "scoreDelta": -0.7, "passFlipped": True}
            ],
            "summary": {
                "total": 1,
                "regressions": 1,
                "improvements": 0,
                "stable": 0,
                "added": 0,
                "removed": 0,
            },
        },
    ),
    "fab-diff-013": Departure(
        "a test is known by its file, its function and its case, so that two of one title are two "
        "tests; one that is not there any more is told, and fails the comparison",
        {
            "scenarios": [
                {"scenario": "test_0", "status": "stable", "scoreDelta": 0, "passFlipped": False},
                {
                    "scenario": "test_1",
                    "status": "removed",
                    "scoreDelta": None,
                    "passFlipped": None,
                },
            ],
            "summary": {
                "total": 2,
                "regressions": 0,
                "improvements": 0,
                "stable": 1,
                "added": 0,
                "removed": 1,
            },
            "hasRegressions": True,
        },
    ),
    "fab-diff-016": Departure(_SUSPECTED, {"hasRegressions": False}),
    "fab-report-001": Departure(
        _NO_SUMS,
        {
            "top_keys": ["schemaVersion", "kindlm", "run", "summary", "gates", "tests", "errors"],
            "summary": _sums(2, 1),
        },
    ),
    "fab-report-002": Departure(
        "a run without any test is an error, and has no report", {"summary": None}
    ),
    "fab-report-003": Departure(
        "the page holds no data beside what it shows, and all of that is escaped",
        {"raw_script_breakout_in_embedded_json": False, "tool_name_escaped": True},
    ),
    "fab-report-005": Departure(
        "the list says how many repeats of each test passed; what is errored is told as that, and "
        "has no score; names are whole",
        {
            "columns": [],
            "score_cells": [False, False],
            "errored_scenario_score_cell": None,
            "errored_assertion_cell": None,
            "name_truncated_to": None,
            "summary_counts": {"total": 3, "passed": 1, "failed": 1, "errored": 1},
        },
    ),
    "fab-gen-009": Departure(_NO_CODE, {"file": "test_tone_s1.py", "code": ""}),
    "fab-gen-012": Departure(_NO_CODE, {"file": "test_tone_s1.py", "code": ""}),
    "fab-gen-014": Departure(_NO_CODE, {"file": "test_tone_s1.py", "code": ""}),
    "fab-disc-001": Departure(_NO_TREES),
    "fab-disc-002": Departure(_NO_TREES),
    "fab-disc-004": Departure(
        "what can not be read is an error, and no empty profile; a system prompt is read whole",
        {"chars_sent": 16000, "tools": None, "constraints": None},
    ),
    "fab-cli-001": Departure("a run with a test that fails ends with 1", {"exit_code": 1}),
    "fab-cli-003": Departure(
        "`--format` (`--reporter`) decides what is written to standard output",
        {"stdout_is_json": True},
    ),
    "fab-cli-005": Departure(
        "after the command, `--version` is another name of `--label`",
        {"prints": "the report of the run foo", "tests_run": 1},
    ),
    "fab-cli-008": Departure(
        "the history is there before anything is called", {"raises": False, "recorded": 1}
    ),
    "fab-cli-009": Departure(
        "models of Ollama judge as others do", {"warning": False, "llm_assertions": "all pass"}
    ),
    "fab-cli-010": Departure("agents may be programs", {"raises": False}),
    "fab-cli-013": Departure(
        "the threshold of the configuration counts", {"status": "stable", "exit_code": 0}
    ),
    "fab-cli-014": Departure(
        "`--format json` writes JSON alone to standard output", {"stdout_is_json": True}
    ),
    "fab-cli-020": Departure(
        f"{_NO_TREES}: `--agent` comes before the agent of the configuration",
        {"precedence": ["--agent", "config.agent.url"]},
    ),
    "fab-cli-021": Departure(
        "a profile is made anew each time; the file is for people",
        {"warning": False, "reuses_cached_profile": False},
    ),
    "fab-cli-022": Departure("the system prompt is read", {"file_read": True}),
    "fab-cli-024": Departure(
        "a time that is no number is refused before anything runs. A timeout of the agent makes "
        "the execution errored, not failed",
        {"all_time_out": False, "status_of_a_timeout": "errored"},
    ),
    "fab-cli-025": Departure(
        "less than one at once is refused before anything runs",
        {"scenarios_run": 0, "sequential": None},
    ),
    "fab-store-003": Departure(_WORDS, {"latest": "v1", "previous": "v2"}),
    "fab-store-004": Departure(_WORDS, {"raises": False, "previous": "t1"}),
    "fab-init-002": Departure(
        "nothing is installed, so that no package manager has to be known", {"package_manager": []}
    ),
}
