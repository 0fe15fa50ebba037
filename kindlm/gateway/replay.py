"""Recorded model calls, given again to agents whose code runs anew.

A request of an agent is looked up among those of one recorded attempt, by its normal form. The nth
equal question gets the nth answer. Only whole answers are given: a call that failed then, or was
cut off, is none. What was never recorded is a miss that names what differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from itertools import islice
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError
from kindlm.gateway.fingerprints import differences, fingerprint, normal_form
from kindlm.gateway.upstreams import ITEMS, WIRES, sent_body
from kindlm.ports import RecordedModelCall
from kindlm.wires.reading import read_answer
from kindlm.wording import count, listed

_TOLD = 3
_COUNTED = 20
"""So many differences from a recorded request are counted, to find the one that comes closest."""


Replayer = Callable[[str, str, Any], RecordedModelCall | str]
"""Returns the recorded call that answers one of an agent, with a whole answer; or why none does.

It takes the attempt that asks now, as in `CallDesk.subject`; the provider and its path, such as
`openai/chat/completions`, never with `v1/`; and the JSON value of the request, None if it is none.
"""


@dataclass(frozen=True, slots=True)
class _Question:
    """A recorded call; `body` is its request, a JSON value."""

    call: RecordedModelCall
    body: Any
    form: Any
    fingerprint: str


@dataclass(eq=False)
class RecordedModels:
    """The answers that models gave to an agent in one attempt; implements `ports.ReplayedModels`.

    `source` is that attempt, such as `k3f9x2ab-17.1`; `paid_before_usd` is what those before it
    cost. `missed` is the first request since it was taken that was never recorded, as an error.
    """

    source: str
    calls: Sequence[RecordedModelCall]
    latencies_ms: Sequence[float]
    masks_times: bool
    warnings: Sequence[str] = ()
    paid_before_usd: float = 0.0
    missed: KindlmError | None = None
    _asked: Counter[str] = field(default_factory=Counter, init=False)
    _given: dict[str, str] = field(default_factory=dict, init=False)

    @cached_property
    def _questions(self) -> list[_Question]:
        """What was asked then, in that order; ids in answers are named by what they answered."""
        questions = list[_Question]()
        for call in self.calls:
            body, wire = sent_body(call.path, call.body, call.items), WIRES.get(call.path)
            if body is None:
                continue  # it was not JSON: nothing can be compared with it
            form = normal_form(body, self._given, masks_times=self.masks_times)
            question = _Question(call, body, form, fingerprint(call.path, form))
            questions.append(question)
            if wire is not None and call.answer is not None:
                answer = read_answer(wire, call.content_type, call.answer)
                for place, ident in enumerate((answer.id, *(use.id for use in answer.tool_calls))):
                    self._given.setdefault(ident or "", f"{question.fingerprint}.{place:03}")
        return questions

    def latency_ms(self, message: int) -> float | None:
        """Return what the agent took for a message then; see `ports.ReplayedModels`."""
        return self.latencies_ms[message] if message < len(self.latencies_ms) else None

    def answer(self, path: str, body: Any) -> RecordedModelCall | str:
        """Return the same request with its answer, or why there is none; see `Replayer`."""
        questions = self._questions
        if body is None:
            return self._miss(path, "it is not JSON, so kindlm cannot compare it")
        try:
            form = normal_form(body, self._given, masks_times=self.masks_times)
        except RecursionError:
            return self._miss(path, "it is nested too deeply")
        wanted = fingerprint(path, form)
        found = [each.call for each in questions if each.fingerprint == wanted]
        same = [call for call in found if call.failure is None]
        number = self._asked[wanted]
        self._asked[wanted] += 1
        if number < len(same):
            call = same[number]
            if call.answer is not None:
                return call
            why = f"the answer of {call.id} is no longer stored"
        elif same:
            why = f"it was made {count(len(same), 'time')} then, and comes once more now"
        elif found:
            return self._miss(path, f"it failed then: {found[0].failure}", verb="answered")
        else:
            why = self._nearest(path, form)
        hint = "Record it: kindlm test; or put it back as it was"
        if not same and self.missed is None and self._differs_in_times_alone(path, body):
            hint = "They differ only in times or UUIDs: kindlm replay --mask-times"
        return self._miss(path, why, hint)

    def _miss(
        self,
        path: str,
        why: str,
        hint: str = "Record it: kindlm test",
        verb: str = "recorded",
    ) -> str:
        message = (
            f"Run {self.source.rpartition('-')[0]} never {verb} this request from the agent to "
            f"its model (call {self._asked.total()}, {path}): {why}."
        )
        self.missed = self.missed or KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint)
        return message

    def _nearest(self, path: str, form: Any) -> str:
        """Return how a request differs from the recorded one that comes closest."""
        like_it = [each for each in self._questions if each.call.path == path]
        if not like_it:
            return "no request was recorded there"
        # One that was not given yet, and as far into the conversation, shows best what changed.
        like_it.sort(key=lambda each: self._asked[each.fingerprint] > 0)
        length = _length(path, form)
        as_far = [each for each in like_it if _length(path, each.form) == length]
        found = [list(islice(differences(each.form, form), _COUNTED)) for each in as_far or like_it]
        nearest = min(found, key=len)
        return listed(nearest, _TOLD)

    def _differs_in_times_alone(self, path: str, body: Any) -> bool:
        masked = normal_form(body, self._given, masks_times=True)
        return not self.masks_times and any(
            each.call.path == path
            and normal_form(each.body, self._given, masks_times=True) == masked
            for each in self._questions
        )


def _length(path: str, form: Any) -> int:
    wire = WIRES.get(path)
    items = form.get(ITEMS[wire]) if wire is not None and isinstance(form, dict) else None
    return len(items) if isinstance(items, list) else 0
