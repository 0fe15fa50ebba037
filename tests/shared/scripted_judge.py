"""A judging model that says what a test tells it to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kindlm.errors import Err, Ok, Result
from kindlm.ports import ModelReply, Question
from kindlm.transcript import FinishReason


class Judge:
    """Gives some answers in turn, and keeps what it was asked; what is no text is sent as JSON.

    All its answers end for the same reason.
    """

    def __init__(
        self, *answers: Mapping[str, Any] | str | Err, ending: FinishReason | None = None
    ) -> None:
        self.asked: list[Question] = []
        self._answers = iter(answers)
        self._ending = ending

    async def __call__(self, question: Question) -> Result[ModelReply]:
        self.asked.append(question)
        answer = next(self._answers)
        if isinstance(answer, Err):
            return answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Ok(ModelReply(text, text, 1.0, finish_reason=self._ending))

    def told(self) -> str:
        """Return all that it was asked, without the random tokens around the data."""
        questions = "\n".join(each.system + each.user for each in self.asked)
        return re.sub(r"(?<=KINDLM-DATA-)[0-9a-f]{8}", "", questions)

    def data(self, index: int) -> Any:
        """Return what stood in a question to be judged."""
        return json.loads(self.asked[index].user.splitlines()[1])
