"""What a run will cost, before anything is called: an estimate from sizes and prices.

Input is taken as four characters a token, and every answer as long as `maxTokens` allows. Each
message of the user is one call, and each judge one for each of its passes. Not counted is what
only the run itself can tell: answers to tool calls, retries, drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kindlm.checks.judge import Judge
from kindlm.providers.pricing import PriceTable
from kindlm.suite import Case, Expectation, ModelTarget, SimulatedTool, Suite
from kindlm.transcript import Usage

_CHARACTERS_PER_TOKEN = 4
_JUDGE_ANSWER = 512
"""Tokens of the longest answer that judges of a criterion may give."""

_JUDGE_INSTRUCTIONS = 2_000
"""Characters that a judge is told besides the transcript, the criterion and the rubric."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Calls, tokens and dollars of some executions; `unpriced` are models without a price.

    `unforeseen` are agents and commands: what they spend, they tell afterwards.
    """

    calls: int = 0
    judge_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: frozenset[str] = frozenset()
    unforeseen: frozenset[str] = frozenset()

    def __add__(self, other: Estimate) -> Estimate:
        """Add the estimates of two groups."""
        return Estimate(
            self.calls + other.calls,
            self.judge_calls + other.judge_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
            self.unpriced | other.unpriced,
            self.unforeseen | other.unforeseen,
        )

    def times(self, count: int) -> Estimate:
        """Return the estimate of `count` equal executions."""
        return Estimate(
            self.calls * count,
            self.judge_calls * count,
            self.input_tokens * count,
            self.output_tokens * count,
            self.cost_usd * count,
            self.unpriced,
            self.unforeseen,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    target: ModelTarget
    characters: int
    output_tokens: int
    judging: bool = False


def estimate_execution(suite: Suite, case: Case, target: str, prices: PriceTable) -> Estimate:
    """Return what one execution of a case on a target takes at least."""
    users = (case.prompt.user, *case.follow_ups)
    model = None if case.command else suite.models.get(target)
    if model is None:
        # What an agent or a program spends itself, nobody knows beforehand, unless it is free.
        free = prices.cost("", target, Usage()).usd is not None
        estimate = Estimate(
            calls=len(users), unforeseen=frozenset() if free else frozenset({target})
        )
        answers = 0
    else:
        calls = list(_conversation(case, model, users))
        estimate = sum((_priced(suite, call, prices) for call in calls), Estimate())
        answers = model.params.max_tokens * _CHARACTERS_PER_TOKEN * len(users)
    transcript = len(case.prompt.system or "") + sum(map(len, users)) + answers
    for expectation in case.expectations:
        for call in _judging(suite, expectation, transcript):
            estimate += _priced(suite, call, prices)
    return estimate


def _conversation(case: Case, model: ModelTarget, users: tuple[str, ...]) -> Iterator[_Call]:
    """Yield a call for each message of the user; what was said before is sent each time."""
    answer = model.params.max_tokens
    said = len(case.prompt.system or "") + len(case.prompt.prefill or "")
    said += sum(len(json.dumps(_definition(tool))) for tool in case.tools)
    for user in users:
        said += len(user)
        yield _Call(model, said, answer)
        said += answer * _CHARACTERS_PER_TOKEN


def _judging(suite: Suite, expectation: Expectation, transcript: int) -> Iterator[_Call]:
    check = expectation.check
    judge = suite.judge(check.model) if isinstance(check, Judge) else None
    if judge is None:
        return
    asked = len(check.criteria) + len(check.rubric or "")
    characters = transcript + asked + _JUDGE_INSTRUCTIONS
    for _ in range(check.passes):
        yield _Call(judge, characters, _JUDGE_ANSWER, judging=True)


def _priced(suite: Suite, call: _Call, prices: PriceTable) -> Estimate:
    tokens = -(-call.characters // _CHARACTERS_PER_TOKEN)
    usage = Usage(tokens, call.output_tokens)
    free = 0.0 if suite.providers[call.target.provider].type == "scripted" else None
    usd = prices.cost(call.target.provider, call.target.model, usage, free).usd
    return Estimate(
        calls=0 if call.judging else 1,
        judge_calls=1 if call.judging else 0,
        input_tokens=tokens,
        output_tokens=call.output_tokens,
        cost_usd=usd or 0.0,
        unpriced=frozenset() if usd is not None else frozenset({call.target.model}),
    )


def _definition(tool: SimulatedTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
