"""Records and counts the model calls that an agent makes in one conversation.

Tool calls come from the answers of models, and tool results from the first request that contains
them. History that a request repeats is not counted again. Calls after an answer of the agent belong
to its next answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from kindlm.calls_in_text import MARK, MARK_WARNING
from kindlm.dataclass import dataclass, replace
from kindlm.errors import ErrorCode
from kindlm.events.execution_events import ProviderFailed, ProviderRequested, ProviderResponded
from kindlm.gateway.upstreams import FREE, SILENT, ReceivedAnswer, read_content
from kindlm.ports import CallDesk, Purpose, Seen
from kindlm.stored_form import bounded
from kindlm.transcript import Cost, CostSource, Message, Role, ToolCall, ToolUse, Usage, sum_of
from kindlm.wires import WireAnswer, object_or_empty, text_or_none
from kindlm.wires.reading import ITEMS, WIRES, WireRequest, read_request
from kindlm.wording import shown
from kindlm_store.new_event import scrub

_REMEMBERED_CALLS = 32
_WAIT_AFTER_ANSWER_S = 5.0
_WAIT_AFTER_FAILURE_S = 1.0
_CODES = {
    401: ErrorCode.PROVIDER_AUTH_ERROR,
    403: ErrorCode.PROVIDER_AUTH_ERROR,
    429: ErrorCode.PROVIDER_RATE_LIMIT,
    0: ErrorCode.PROVIDER_NETWORK_ERROR,
}

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(eq=False, slots=True)
class ModelCall:
    """One model call.

    `items` are the messages in its request, which begin with those of `base`. `answer_so_far`
    returns the part of the answer that has arrived.
    """

    number: int
    path: str
    model: str
    items: Sequence[Any] = ()
    base: ModelCall | None = None
    tries: int = 1
    begun: float = field(default_factory=time.perf_counter)
    answer: WireAnswer | None = None
    answer_so_far: Callable[[], ReceivedAnswer] | None = None
    is_over: bool = False

    @property
    def provider(self) -> str:
        """The provider, as the path begins."""
        return self.path.partition("/")[0]

    @property
    def latency_ms(self) -> float:
        """The time since it began."""
        return round((time.perf_counter() - self.begun) * 1000, 3)


@dataclass(eq=False, slots=True)
class _Use:
    call: ToolCall
    response: Any = None
    is_answered: bool = False


class SeenConversation:
    """One conversation with an agent, as the gateway sees it.

    `desk` receives the events and the cost of calls. `hint` is what to do if no calls arrive.
    `is_asked` is whether the agent has a message to answer. `open` are the running calls by task.
    """

    def __init__(self, agent: str, desk: CallDesk, hint: str = "") -> None:
        self.agent = agent
        self.desk = desk
        self._hint = hint
        self.is_asked = False
        self.open: dict[asyncio.Task[Any], ModelCall | None] = {}
        self._failed = range(0)  # numbers of calls in failed tries of the message
        self._calls: list[ModelCall] = []
        self._offers_tools = False
        self._latest: dict[str, _Use | None] = {}  # by id; None for a call that was not seen
        self._early: dict[str, Any] = {}  # tool results by ids of calls that were not seen yet
        self._has_answer = False
        self._uses: list[_Use] = []
        self._usage: list[tuple[int, Usage, Cost]] = []
        self._model: str | None = None
        self._lost: list[str] = []
        self._trouble: str | None = None

    def lose(self, why: str, hint: str = "") -> None:
        """Note that the gateway may have missed tool calls.

        `hint` is for a refused call, which may also be why the agent fails.
        """
        if why not in self._lost:
            self._lost.append(why)
        if hint:
            self._trouble = f"{why} {hint}."

    async def begin(self, call: int) -> None:
        """Begin to observe: a message is about to be sent, perhaps not for the first time."""
        self._failed = range(self._failed.start if self.is_asked else call, call)
        self.is_asked = True

    async def trouble(self) -> str | None:
        """Return the last failed call and the remedy, only once; None if a later call succeeded."""
        if self.open:
            await asyncio.wait(set(self.open), timeout=_WAIT_AFTER_FAILURE_S)
        trouble, self._trouble = self._trouble, None
        return trouble

    def record_request(self, path: str, body: Any) -> ModelCall:
        """Record a request to a model; `body` is the JSON value, None if it is not JSON."""
        wire, sent = WIRES.get(path), object_or_empty(body)
        key = ITEMS[wire] if wire is not None else ""
        items = sent[key] if isinstance(sent.get(key), list) else []
        base, twin = self._begins_with(path, items)
        begins = [] if base is None else base.items
        new = items[len(begins) :]
        model = bounded(scrub(text_or_none(sent.get("model")) or ""))
        # Equal items are kept once.
        call = ModelCall(self.desk.next_call(), path, model, [*begins, *new], base)
        if twin is not None and twin.answer is None:
            call.tries = twin.tries + 1
        request = WireRequest()
        if wire is not None and isinstance(body, dict):
            request = read_request(wire, body | {key: new} if items else body)
            for call_id, result in request.tool_results.items():
                use = self._latest.get(call_id)
                if call_id not in self._latest:
                    # The agent receives an answer shortly before the gateway records it.
                    self._early.setdefault(call_id, result)
                elif use is not None and not use.is_answered:
                    use.response, use.is_answered = result, True
            self._offers_tools = self._offers_tools or request.offers_tools
        elif wire is not None:
            self.lose("A request of the agent to its model could not be read.")
        elif not SILENT.fullmatch(path):
            where = bounded(scrub(path))
            self.lose(f"The agent called {where}, whose answers do not show tool calls.")
        continued = (
            each
            for each in self._calls
            if request.continues and each.answer and each.answer.id == request.continues
        )
        previous = next(continued, base)
        rest = {name: value for name, value in sent.items() if name != key or not items}
        self.desk.record(
            ProviderRequested(
                purpose=Purpose.AGENT,
                provider=call.provider,
                model=model,
                call=call.number,
                attempt=call.tries,
                fingerprint="",
                after=previous.number if previous else 0 if wire is not None else None,
                messages=_storable(request.messages, previous),
                path=path,
                body=scrub(_dumps(rest)) if isinstance(body, dict) else None,
                base=base.number if base is not None else None,
                items=[scrub(_dumps(item)) for item in new],
            )
        )
        self._calls.append(call)
        del self._calls[:-_REMEMBERED_CALLS]
        return call

    def _begins_with(
        self, path: str, items: Sequence[Any]
    ) -> tuple[ModelCall | None, ModelCall | None]:
        """Return the latest call whose items a request begins with, and a call with equal items."""
        for call in reversed(self._calls):
            if call.path != path or not call.items or len(call.items) > len(items):
                continue
            if call.items == items[: len(call.items)]:
                # A repeated request continues what the first one continued.
                same = len(call.items) == len(items)
                return (call.base, call) if same else (call, None)
        return None, None

    def record_answer(self, call: ModelCall, got: ReceivedAnswer) -> None:
        """Record and count an answer, unless the conversation ended meanwhile."""
        if call.is_over:
            return
        call.is_over = True
        answer, problem = read_content(call.path, got)
        if problem is None:
            self._record_response(call, got, answer)
        else:
            self._record_failure(call, got, answer, problem)

    def _record_failure(
        self, call: ModelCall, got: ReceivedAnswer, answer: WireAnswer, problem: str
    ) -> None:
        if got.status < 400 and got.status and not SILENT.fullmatch(call.path):
            self.lose(f"A model answer is incomplete: {problem}")
        model = bounded(scrub(answer.model)) if answer.model else None
        usage, cost = answer.usage, Cost()
        if usage != Usage() and got.recorded is None:
            cost = self.desk.price(call.provider, model or call.model, usage)
            self.desk.spend(model or call.model, cost)
        source = None if cost.usd is None else cost.source
        if got.status < 400 and got.is_sent and call.path not in FREE:
            # An answer that was cut off may not report all its tokens.
            charged = (Usage(), Cost()) if answer.error is None else (usage, cost)
            self._usage.append((call.number, *charged))
            if charged[1].usd is None and got.recorded is None:
                source = CostSource.UNKNOWN
                self.desk.spend(model or call.model, Cost())
        if got.hint:
            why = bounded(scrub(problem)).rstrip(".")
            self._trouble = f"Its call to {call.path} failed: {why}. {got.hint}."
        code = _CODES.get(got.status, ErrorCode.PROVIDER_API_ERROR)
        self.desk.record(
            ProviderFailed(
                call=call.number,
                error_code=code.name,
                error_number=code.value,
                status=got.status or None,
                message=scrub(problem),
                raw=None if got.body is None else scrub(got.body),
                latency_ms=call.latency_ms,
                model=model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=cost.usd,
                cost_source=source,
            )
        )

    def _record_response(self, call: ModelCall, got: ReceivedAnswer, answer: WireAnswer) -> None:
        call.answer, self._trouble = answer, None
        model = bounded(scrub(answer.model)) if answer.model else None
        cost = now = Cost(0.0, CostSource.COMPUTED)
        if call.path not in FREE:
            cost = now = self.desk.price(call.provider, model or call.model, answer.usage)
        then, latency_ms = got.recorded, call.latency_ms
        failed: Sequence[tuple[Usage, Cost]] = ()
        if then is not None:
            # The agent costs what was paid then; nothing is spent now.
            cost, now = replace(cost, usd=then.cost_usd), Cost(0.0, CostSource.COMPUTED)
            failed, latency_ms = then.failed, then.latency_ms
        self.desk.spend(model or call.model, now)
        self._usage.append((call.number, answer.usage, cost))
        self._usage += ((call.number, *charged) for charged in failed)
        known = [each.usd for _, each in failed if each.usd is not None]
        self._model = model or self._model
        self._has_answer = self._has_answer or call.path in WIRES
        if mark := MARK.search(answer.text):
            self.lose(MARK_WARNING.format(shown(mark[0])))
        for each in answer.tool_calls:
            results = self._early if each.id in self._early else answer.hosted
            use = _Use(each, results.get(each.id), each.id in results)
            self._early.pop(each.id, None)
            self._uses.append(use)
            self._latest[each.id] = use
        self.desk.record(
            ProviderResponded(
                call=call.number,
                text=scrub(answer.text),
                model=model,
                input_tokens=answer.usage.input_tokens,
                output_tokens=answer.usage.output_tokens,
                latency_ms=round(latency_ms, 3),
                cost_usd=now.usd,
                cost_source=cost.source,
                recorded_in=then.id if then else None,
                cost_then_usd=then.cost_usd if then else None,
                failed_then_usd=sum(known) if known else None,
                unknown_then=len(failed) - len(known) or None,
                raw=None if got.body is None else scrub(got.body),
                tool_calls=tuple(map(ToolCall.storable, answer.tool_calls)),
                finish_reason=answer.finish_reason,
                content_type=got.content_type,
            )
        )

    async def seen(self) -> Seen:
        """Return the record since the last time, after waiting for running calls."""
        running = set[asyncio.Task[Any]]()
        if self.open:
            # The agent receives an answer shortly before the gateway records it.
            _, running = await asyncio.wait(set(self.open), timeout=_WAIT_AFTER_ANSWER_S)
            if running:
                self.lose(
                    "A model call was still running when the agent answered. Let the agent "
                    "answer after its model calls have ended."
                )
        if self._early:
            self.lose(
                "The agent sent its model the result of a tool call that no model made through the"
                " gateway. It may call models elsewhere, or begin with calls from examples or an"
                " earlier conversation."
            )
            self._latest |= dict.fromkeys(self._early)
        missing = self._missing()
        spent = [(usage, cost) for call, usage, cost in self._usage if call not in self._failed]
        spent += [(Usage(), Cost()) for _ in running]
        usage, cost = sum_of(spent)
        seen = Seen(
            tool_uses=tuple(ToolUse(use.call, use.response) for use in self._uses),
            usage=usage,
            cost=cost if spent else None,
            model=self._model if spent else None,
            missing=missing,
        )
        self._early, self._has_answer, self.is_asked = {}, False, False
        self._uses, self._usage, self._lost, self._trouble = [], [], [], None
        return seen

    def close(self) -> str | None:
        """End the running calls: the conversation is over; see `ports.Observation`."""
        why = "The conversation ended before the answer was complete."
        for task, call in list(self.open.items()):
            task.cancel()
            if call is not None:
                so_far = call.answer_so_far
                got = ReceivedAnswer(0, "", None) if so_far is None else so_far()
                self.record_answer(call, replace(got, problem=why))
        if self.is_asked or not self._uses:
            return None
        names = ", ".join(map(bounded, dict.fromkeys(scrub(use.call.name) for use in self._uses)))
        return (
            f"A model of the agent {self.agent} called tools after its last answer, which no check"
            f" saw: {names}"
        )

    def _missing(self) -> str | None:
        if self._lost:
            return " ".join(self._lost)
        if not self._has_answer:
            return (
                f"No model answered the agent {self.agent} through the gateway for this "
                f"message, so its tool calls are unknown. {self._hint} Or let the agent report its"
                " tool calls."
            )
        if not self._offers_tools:
            return (
                f"The agent {self.agent} offered its models no tools: tools that it calls in"
                " another way, such as from the text of an answer, cannot be seen. Let it report"
                " its tool calls, or add `reportsTools: true` if it has none."
            )
        lacking = [use.call.name for use in self._uses if not use.is_answered]
        if lacking:
            names = ", ".join(map(bounded, dict.fromkeys(map(scrub, lacking))))
            return (
                f"A model of the agent {self.agent} called {names}, but received no result, so"
                " it is unknown whether the agent ran it. Let the agent report its tool calls, or"
                " add `reportsTools: true` if it runs all that its models call."
            )
        return None


def _storable(messages: Sequence[Message], previous: ModelCall | None) -> tuple[Message, ...]:
    """Return the messages that are new since the previous answer, in their stored form."""
    if previous is not None:
        # The system text and that answer are recorded already.
        messages = [each for each in messages if each.role not in (Role.SYSTEM, Role.ASSISTANT)]
    return tuple(
        replace(
            each,
            text=scrub(each.text),
            tool_calls=tuple(map(ToolCall.storable, each.tool_calls)),
            tool_call_id=None if each.tool_call_id is None else bounded(scrub(each.tool_call_id)),
        )
        for each in messages
    )
