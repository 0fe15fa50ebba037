"""Guesses the name that a user meant by an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MAX_LISTED = 10
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")

_FOREIGN = {
    "expect": "assert assertions asserts checks criteria expectations metrics thresholds",
    "argsMatch": "args arguments expectedargs inputparameters params parameters with",
    "tool": "function name toolname",
    "toolCalls": "calls expectedtools functioncalls toolscalled toolusage trajectory usedtools",
    "shouldNotCall": "forbidden never not notcalled",
    "contains": "contain icontains include includes mustcontain mustinclude shouldcontain",
    "notContains": "exclude excludes mustnotcontain notinclude shouldnotcontain",
    "containsAny": "anyof icontainsany",
    "equals": "actual answer equal exact exactly expectedoutput expectedanswer is",
    "regex": "match matches pattern regexp",
    "notRegex": "doesnotmatch notmatch notmatches notpattern",
    "judge": "faithfulness geval judges llmjudge llmrubric rubric",
    "criteria": "assertion criterion instruction name prompt question",
    "minScore": "min passthreshold score threshold",
    "judgeModel": "evaluator grader judge",
    "count": "number times",
    "user": "content message prompt query question text",
    "repeat": "iterations n repeats repetitions runs samples times trials",
    "input": "ask content message messages msg query question request says text turns user",
    "conversation": "steps turns",
    "agents": "endpoint target targets url",
    "models": "agent agents llm llms provider providers target targets",
    "endpoint": "address baseurl host uri",
    "apiUrl": "address baseurl endpoint host server uri url",
    "tests": "cases evals examples scenarios testcases",
    "vars": "context inputs values variables",
    "varsFrom": "csv data dataset rows",
    "name": "description id label title",
    "latency": "latencyms maxlatency timeout",
    "cost": "budget costusd maxcost",
    "tools": "functions mcp tool toolmocks",
    "responses": "answers mock mocks returns",
    "defaultResponse": "response result return output",
    "apiKeyEnv": "apikey key",
}
"""kindlm's keys, each with its names in other tools, in lower case without `_` and `-`."""


ENDED = {"github": "GitHub Models ended on 30 July 2026: choose another provider"}
"""Providers that no longer exist."""


def suggest(name: str, candidates: Iterable[str], *, one_in: int = 3) -> str | None:
    """Return the candidate that `name` is probably a misspelling of, or None.

    One letter in `one_in` may be inserted, removed, replaced, or swapped with its neighbour. Case
    does not matter.
    """
    best: str | None = None
    limit, letters = len(name) // one_in, set(name.casefold())
    for candidate in candidates:
        # Counting is slow, and a file may have thousands of names: skip those that are too far.
        too_long = abs(len(candidate) - len(name)) > limit
        if too_long or len(letters.difference(candidate.casefold())) > limit:
            continue
        distance = _distance(name.casefold(), candidate.casefold())
        if distance <= limit:
            best, limit = candidate, distance - 1
    return best


def meant_by(name: str, known: Iterable[str], *, is_elsewhere: bool = False) -> str | None:
    """Return the key that is probably meant: kindlm's key for another tool's, or a similar one.

    With `is_elsewhere`, a key of another tool belongs elsewhere in the file: similar keys are not
    suggested.
    """
    keys, foreign = list(known), words_for(name)
    same = next((key for key in keys if _squashed(key) == _squashed(name)), None)
    here = same or next((key for key in foreign if key in keys), None)
    if here is not None or (foreign and is_elsewhere):
        return here
    return suggest(name, keys) or _same_words(name, keys)


def words_for(name: str) -> list[str]:
    """Return kindlm's keys for a key of another tool, the most likely first."""
    return [key for key, others in _FOREIGN.items() if _squashed(name) in others.split()]


def _squashed(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return `Did you mean …?` with the candidate that a name resembles; None if none does."""
    names = list(candidates)
    close = suggest(name, names) or _same_words(name, names)
    return close and f'Did you mean "{close}"?'


def hint_for(name: str, candidates: Iterable[str], known: str, more: str = "") -> str:
    """Return `Did you mean …?`, or the list of candidates, introduced by `known`, and `more`.

    Candidates that share a word with the name come first, since the list may be cut.
    """
    names = list(dict.fromkeys(candidates))
    if (meant := did_you_mean(name, names)) is not None:
        return meant
    words = _words(name)
    names.sort(key=lambda each: words.isdisjoint(_words(each)))
    listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
    stop = " " if listed.endswith("…") else ". "
    return f"{known}: {listed or 'none'}" + (f"{stop}{more}" if more else "")


def _same_words(name: str, candidates: list[str]) -> str | None:
    """Return the only candidate whose words contain those of a name, or vice versa."""
    words = _words(name)
    found = [key for key in candidates if words <= _words(key) or _words(key) <= words]
    return found[0] if len(found) == 1 else None


def _words(name: str) -> set[str]:
    return set(_HUMP.sub("_", name).casefold().replace("-", "_").split("_"))


def _distance(left: str, right: str) -> int:
    """Return how many letters have to be inserted, removed, replaced, or swapped with the next."""
    before, last, row = [0], [0], list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        before, last, row = last, row, [i]
        for j, b in enumerate(right, start=1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (right[j - 2], left[i - 2]):
                least = min(least, before[j - 2] + 1)
            row.append(least)
    return row[-1]
