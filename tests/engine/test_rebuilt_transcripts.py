"""A conversation is rebuilt from its record as it was when it was checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.recorded_attempts import RecordedAttempt, transcript_of
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import AgentReply, CheckContext, ModelReply
from kindlm.projections import PROJECTIONS
from kindlm.suite import AgentTarget, Expectation, Prompt
from kindlm.transcript import FinishReason, ToolCall, ToolUse, Transcript, Usage
from kindlm_store import EventLog

# Whatever characters models write: halves of surrogate pairs and NUL, too.
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
NAMES = st.text(min_size=1, max_size=200)
SAID = TEXTS.filter(str.strip)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
CALLS = st.builds(
    ToolCall,
    TEXTS,
    st.just("lookup") | NAMES,
    st.dictionaries(TEXTS, JSON, max_size=3),
) | st.builds(ToolCall, TEXTS, NAMES, st.just({}), TEXTS)
COUNTS = st.none() | st.integers(0, 10**9)
FIGURES = {
    "raw": st.just(""),
    "latency_ms": st.floats(0, 1e6),
    "usage": st.builds(Usage, COUNTS, COUNTS),
    "reported_cost_usd": st.none() | st.floats(0, 10),
    "model": st.none() | NAMES,
}
FINISHES = st.none() | st.sampled_from(FinishReason)
ANSWERS = st.builds(ModelReply, SAID, finish_reason=FINISHES, **FIGURES)
ROUNDS = st.builds(
    ModelReply,
    TEXTS,
    tool_calls=st.lists(CALLS, min_size=1, max_size=3).map(tuple),
    finish_reason=FINISHES,
    **FIGURES,
)
REFUSED = KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "busy", details={"retryable": True})
TURNS = st.tuples(TEXTS, st.lists(ROUNDS, max_size=2), ANSWERS, st.lists(st.booleans(), max_size=5))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
AGENT_REPLIES = st.builds(
    AgentReply,
    SAID,
    tool_uses=st.lists(
        st.builds(ToolUse, CALLS, JSON, st.just("agent")), max_size=3
    ).map(tuple),
    reported=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    **FIGURES,
)  # fmt: skip


class Witness:
    """A checker that keeps what it was shown."""

    def __init__(self) -> None:
        self.seen: Transcript | None = None

    def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult:
        self.seen = transcript
        return CheckResult("contains", "x", Outcome.PASSED)


def rebuilt_and_seen(bench_type: Any, case: Any, outcomes: Any, **suite: Any) -> Any:
    with (
        TemporaryDirectory() as folder,
        EventLog.open(Path(folder) / "history.db", projections=PROJECTIONS) as log,
    ):
        bench = bench_type(log)
        bench.client.outcomes = bench.agent.outcomes = list(outcomes)
        witness = Witness()
        bench.checker = witness
        asyncio.run(bench.run([suite["make"].suite(case, **suite["with_"])]))
        log.flush().result()
        with closing(log.reader()) as reader:
            attempt = RecordedAttempt(reader, "r-1", 1)
            return transcript_of(attempt.talk()), witness.seen, attempt.finished.failure


def with_refusals(replies: Sequence[Any], refused: Sequence[bool]) -> list[Any]:
    """Let some of the replies come at the second try only."""
    tries: list[Any] = []
    for number, reply in enumerate(replies):
        tries += [REFUSED, reply] if number < len(refused) and refused[number] else [reply]
    return tries


def case_of(make: Any, system: str | None, users: Sequence[str], **fields: Any) -> Any:
    return make.case(
        prompt=Prompt(users[0], system=system),
        follow_ups=tuple(users[1:]),
        expectations=(make.contains("x"),),
        **fields,
    )


def test_a_transcript_of_any_conversation_with_a_model_is_rebuilt(make: Any, bench: Any) -> None:
    bench_type = type(bench)

    @examples(25)
    @given(
        system=st.none() | TEXTS,
        turns=st.lists(TURNS, min_size=1, max_size=3),
        answer=JSON,
        max_turns=st.integers(1, 10),
    )
    def check(system: Any, turns: Any, answer: Any, max_turns: int) -> None:
        replies: list[Any] = []
        for _, rounds, last, refused in turns:
            replies += with_refusals([*rounds, last], refused)
        case = case_of(
            make,
            system,
            [user for user, *_ in turns],
            tools=(make.tool("lookup", default=answer),),
            max_turns=max_turns,
        )
        rebuilt, seen, _ = rebuilt_and_seen(bench_type, case, replies, make=make, with_={})
        assert rebuilt == seen

    check()


def test_a_transcript_of_any_conversation_with_an_agent_is_rebuilt(make: Any, bench: Any) -> None:
    bench_type = type(bench)
    agents = {"a": AgentTarget("a", "http", "http://127.0.0.1:1")}

    @examples(15)
    @given(
        system=st.none() | TEXTS,
        turns=st.lists(st.tuples(TEXTS, AGENT_REPLIES, st.booleans()), min_size=1, max_size=3),
    )
    def check(system: Any, turns: Any) -> None:
        replies = [
            tried for _, reply, refused in turns for tried in with_refusals([reply], [refused])
        ]
        case = case_of(make, system, [user for user, *_ in turns], targets=("a",))
        rebuilt, seen, _ = rebuilt_and_seen(
            bench_type, case, replies, make=make, with_={"agents": agents}
        )
        assert rebuilt == seen

    check()


def test_a_conversation_out_of_turns_is_rebuilt_with_its_error(make: Any, bench: Any) -> None:
    case = case_of(make, None, ["one", "two"], max_turns=1)
    rebuilt, seen, error = rebuilt_and_seen(
        type(bench), case, [make.reply("hi")], make=make, with_={}
    )
    assert rebuilt == seen
    assert [turn.user for turn in rebuilt.turns] == ["one"]
    assert error.code is ErrorCode.ENGINE_MAX_TURNS
    assert "was not over" in error.message


def test_what_was_taken_out_of_arguments_leaves_them_as_text(make: Any, bench: Any) -> None:
    """A number whose digits are gone is not JSON any more."""
    case = case_of(make, None, ["pay"], tools=(make.tool("lookup", default=1),))
    replies = [make.reply("", make.call(card=4111)), make.reply("paid")]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        redact = lambda text: text.replace("4111", "[hidden]")  # noqa: E731 - a stand-in
        with EventLog.open(path, projections=PROJECTIONS, redact=redact) as log:
            run = type(bench)(log)
            run.client.outcomes = replies
            asyncio.run(run.run([make.suite(case)]))
            log.flush().result()
            with closing(log.reader()) as reader:
                rebuilt = transcript_of(RecordedAttempt(reader, "r-1", 1).talk())
    (use,) = rebuilt.tool_uses
    assert use.call.arguments == {}
    assert use.call.malformed == json.dumps({"card": 4111}).replace("4111", "[hidden]")


def test_answers_cost_the_same_in_a_conversation_of_any_length(make: Any, bench: Any) -> None:
    calls = 60
    rounds = [make.reply("", make.call(n=n)) for n in range(1, calls)]
    bench.queue(*rounds[:2], make.reply("done"), *rounds, make.reply("done"))
    tools = (make.tool("lookup", default="found"),)
    cases = [
        replace(case_of(make, None, ["look"], tools=tools, max_turns=calls), name=name)
        for name in ("short", "long")
    ]
    asyncio.run(bench.run([make.suite(*cases, concurrency=1)]))
    bench.log.flush().result()
    with closing(bench.log.reader()) as reader:

        def work(execution: str, calls: int) -> float:
            """Return how many steps of queries it takes to read each answer of an attempt."""
            steps: list[int] = []
            reader.set_progress_handler(lambda: steps.append(1), 1)
            attempt = RecordedAttempt(reader, execution, 1)
            answers = [attempt.answer(call) for call in range(1, calls + 1)]
            reader.set_progress_handler(None, 0)
            assert [answer and answer.value.call for answer in answers] == list(range(1, calls + 1))
            assert attempt.answer(calls + 1) is None
            return len(steps) / calls

        assert work("r-2", calls) < 2 * work("r-1", 3)
