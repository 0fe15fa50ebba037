"""Asks a judging model, and once more where it did not answer what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kindlm.checks.judge_prompts import new_token
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.model_answers import why_unread
from kindlm.ports import CheckContext, Question
from kindlm.wording import shown

__all__ = ["ask_judge"]

T = TypeVar("T")

_TRIES = 2


async def ask_judge(
    context: CheckContext, question: Callable[[str], Question], read: Callable[[str], T]
) -> Result[T]:
    """Return what a judging model answers, as `read` understands it.

    Args:
        context: what the check may use.
        question: makes the question with a new token for its boundary lines.
        read: reads an answer; raises `ValueError` that says what is wrong with one that is none.
            Like `question` it takes long where there is a lot to judge, and runs aside.

    Returns:
        The answer, or a JUDGE_EVAL_ERROR if there was none after another try.
    """
    for _ in range(_TRIES - 1):
        answer = await _ask_once(context, question, read)
        if isinstance(answer, Ok):
            return answer
    return await _ask_once(context, question, read)


async def _ask_once(
    context: CheckContext, question: Callable[[str], Question], read: Callable[[str], T]
) -> Result[T]:
    reply = await context.ask(await context.aside(partial(question, new_token())))
    if isinstance(reply, Err):
        return _no_answer(f"The judge could not be asked: {reply.error.message}")
    text = reply.value.text
    try:
        return Ok(await context.aside(partial(read, text)))
    except ValueError as error:
        why = why_unread(error, reply.value.finish_reason)
        return _no_answer(
            f"The judge did not answer the question: {why}. It answered {shown(text)}."
        )


def _no_answer(message: str) -> Err:
    return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message))
