"""Asks a judging model, and reads its answers strictly as they were asked for or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kindlm.checks.echoes import is_copy, readings
from kindlm.checks.judge_prompts import Prompt
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.fencing import new_token
from kindlm.model_answers import bool_member, object_in, text_member, why_unread
from kindlm.ports import CheckContext
from kindlm.wording import shown

__all__ = ["Judge", "Judgement", "Own", "Reader", "decision", "judgement"]

T = TypeVar("T")

_TRIES = 2

Own: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Refuses members of an answer that stand in the data: the judge has to say something itself."""

Reader: TypeAlias = Callable[[dict[str, Any], Own], T]
"""Reads an answer; raises `ValueError` that says what is wrong with one that is none."""


class _CopyError(ValueError):
    """The judge repeated what stands in the data."""


class Judge:
    """A judging model, asked about some texts that it gets to read."""

    def __init__(self, context: CheckContext, texts: Iterable[str]) -> None:
        self._context = context
        self._texts = texts
        self._given: Sequence[str] | None = None

    async def ask(
        self,
        prompt: Prompt,
        data: Callable[[], Mapping[str, Any]],
        read: Reader[T],
        model: str | None = None,
    ) -> Result[T]:
        """Return what the judge answers, or a JUDGE_EVAL_ERROR after another try.

        Args:
            prompt: what it is asked.
            data: what it is asked about. To make them takes long where there is a lot to judge, as
                reading the answer does, so that both run aside.
            read: understands the answer.
            model: the id of the judging model, None for the default.
        """
        given = self._given
        if given is None:
            given = await self._context.aside(partial(readings, self._texts))
            self._given = given
        for _ in range(_TRIES):
            answer = await self._ask_once(prompt, data, read, model, given)
            if isinstance(answer, Ok):
                break
        return answer

    async def _ask_once(
        self,
        prompt: Prompt,
        data: Callable[[], Mapping[str, Any]],
        read: Reader[T],
        model: str | None,
        given: Sequence[str],
    ) -> Result[T]:
        context = self._context
        reply = await context.ask(
            await context.aside(lambda: prompt.question(data(), new_token(), model))
        )
        if isinstance(reply, Err):
            message = f"The judge could not be asked: {reply.error.message}"
            return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message, reply.error.hint))
        text = reply.value.text

        def own(members: Mapping[str, Any]) -> None:
            if is_copy(members, given):
                raise _CopyError

        try:
            return Ok(await context.aside(lambda: read(object_in(text), own)))
        except _CopyError:
            why = prompt.copied
        except ValueError as error:
            why = f": {why_unread(error, reply.value.finish_reason)}"
        message = f"{prompt.unanswered}{why}. It answered {shown(text)}."
        return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge answered: a score and why."""

    score: float
    reasoning: str


def judgement(member: str = "score", highest: float = 1) -> Reader[Judgement]:
    """Return the reader of an answer whose score, from 0 to `highest`, is called `member`.

    A score is taken as it is or not at all: no strings, no booleans, nothing outside its range.
    """

    def read(answer: dict[str, Any], own: Own) -> Judgement:
        score = answer.get(member)
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ValueError(f"its {member} is no number")  # noqa: TRY004 - a wrong answer
        if not 0 <= score <= highest:
            raise ValueError(f"its {member} is not from 0 to {highest:g}")
        found = Judgement(float(score), text_member(answer, "reasoning"))
        own({member: found.score, "reasoning": found.reasoning})
        return found

    return read


def decision(member: str) -> Reader[tuple[bool, str]]:
    """Return the reader of an answer whose yes or no is called `member`: that, and why."""

    def read(answer: dict[str, Any], own: Own) -> tuple[bool, str]:
        decided, reasoning = bool_member(answer, member), text_member(answer, "reasoning")
        text_member(answer, "quote")
        own({member: decided, "reasoning": reasoning})
        return decided, reasoning

    return read
