"""What takes long with a lot of text runs beside the event loop, judges or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from evaluated import demand, evaluated

from kindlm.checks import CheckRunner
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ModelReply, Question
from kindlm.transcript import Transcript

DOWN = Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "rate limited"))


class Counting(ThreadPoolExecutor):
    """A thread that counts what it was given to do."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.given += 1
        return super().submit(function, *args, **more)


async def _answers(question: Question) -> Result[ModelReply]:
    return Ok(ModelReply("no answer", "no answer", 1.0))


async def _is_down(question: Question) -> Result[ModelReply]:
    return DOWN


@pytest.mark.parametrize(
    ("kind", "params", "alone"),
    [
        ("uncertainty", {"judged": True}, 1),
        ("guardrail", {"must": "be kind"}, 1),
        ("safety", {}, 2),
        ("hallucination", {"confidenceThreshold": 0.8}, 2),
        ("weighted_score", {"judged": True, "minScore": 50}, 2),
    ],
)
def test_questions_and_answers_of_a_judge(
    said: Callable[..., Transcript], kind: str, params: Mapping[str, Any], alone: int
) -> None:
    """`alone` is what is looked for without the judge, which is asked twice."""
    for ask, parts in ((_is_down, 1), (_answers, 2)):
        with Counting() as thread:
            runner, expectation = CheckRunner(thread=thread), demand(kind, "l", params)
            evaluated(expectation, said("Well."), ask, runner)
            assert thread.given == alone + 2 * parts


@pytest.mark.parametrize("kind", ["uncertainty", "safety"])
def test_all_phrases_are_searched_in_one_go(said: Callable[..., Transcript], kind: str) -> None:
    with Counting() as thread:
        runner = CheckRunner(thread=thread)
        evaluated(demand(kind, "l", {}), said(" "), _is_down, runner)
        assert thread.given == 1
