"""Whatever valid history was recorded: no projection fails, and a rebuild gives the same tables.

So it is where histories were purged and merged, in whatever order.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.checks.base import codes
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    AgentFailed,
    AgentReplied,
    AgentSent,
    AgentToolUse,
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderFailed,
    ProviderRequested,
    ProviderResponded,
    ToolCalled,
    ToolSimulated,
)
from kindlm.events.run import (
    PURGES,
    BaselineRemoved,
    BaselineSet,
    ContentsPurged,
    GateVerdict,
    PlannedTest,
    ReviewRecorded,
    RunAborted,
    RunExtended,
    RunFinished,
    RunInterrupted,
    RunLabelled,
    RunResumed,
    RunSealed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
)
from kindlm.outcome import CheckResult, Evidence, Gate, GateResult, Outcome, Status
from kindlm.projections import PROJECTIONS
from kindlm.transcript import (
    CostSource,
    FinishReason,
    Message,
    Role,
    ToolCall,
    ToolProblem,
    ToolProblemKind,
    ToolUse,
)
from kindlm_store import Append, EventLog, NewEvent, open_reader
from kindlm_store.erasing import erase, find_erasable
from kindlm_store.merging import Merge

Tables = dict[str, list[tuple[Any, ...]]]

words = st.sampled_from(
    [
        "a",
        "",
        "O'Brien; DROP TABLE runs; --",
        "\0",
        "\x1b[31m",
        "naïve 🦜",
        "\u202e",
        "lone \ud800",
        "x" * 20_000,
    ]
) | st.text(max_size=8)
authored = words
counts = st.none() | st.integers(0, 2**53)
amounts = st.floats(0, 1e300)
maybe_amounts = st.none() | amounts
warnings = st.lists(words, max_size=2)
calls = st.builds(
    ToolCall, words, words, st.dictionaries(words, words, max_size=1), st.none() | words
)
messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(Role),
        text=authored,
        tool_calls=st.lists(calls, max_size=1),
    ),
    max_size=2,
)
failures = {
    "error_code": words,
    "error_number": st.integers(0, 999),
    "status": st.none() | st.integers(100, 599),
    "message": authored,
    "raw": st.none() | authored,
    "latency_ms": amounts,
}
usage = {
    "input_tokens": counts,
    "output_tokens": counts,
    "cost_usd": maybe_amounts,
    "cost_source": st.sampled_from(CostSource),
    "warnings": warnings,
}
replies = {
    "text": authored,
    "model": st.none() | words,
    "latency_ms": amounts,
    "raw": st.none() | authored,
    **usage,
}


def of_model(draw: st.DrawFn, call: int, attempt: int, index: int) -> Iterator[Payload]:
    """A model call or a judge, and the tool that the model asks for."""
    yield draw(
        st.builds(
            ProviderRequested,
            purpose=st.sampled_from(["test", "judge", "drift"]),
            provider=words,
            model=words,
            call=st.just(call),
            attempt=st.just(attempt),
            fingerprint=words,
            parameters=st.dictionaries(words, maybe_amounts, max_size=2),
            assertion=st.none() | st.integers(0, 3),
            after=st.none() | st.integers(0, call - 1),
            messages=messages,
        )
    )
    if draw(st.booleans()):
        retry = st.none() | amounts
        yield draw(st.builds(ProviderFailed, call=st.just(call), retry_in_ms=retry, **failures))
        return
    reason = st.none() | st.sampled_from(FinishReason)
    yield draw(st.builds(ProviderResponded, call=st.just(call), finish_reason=reason, **replies))
    if draw(st.booleans()):
        used = {"index": st.just(index), "call_id": words}
        yield draw(
            st.builds(ToolCalled, call=st.just(call), name=words, arguments=authored, **used)
        )
        problem = st.builds(ToolProblem, kind=st.sampled_from(ToolProblemKind), message=authored)
        yield draw(
            st.builds(
                ToolSimulated,
                rule=words,
                response=authored,
                problems=st.lists(problem, max_size=1),
                **used,
            )
        )


def of_agent(draw: st.DrawFn, call: int, attempt: int, index: int) -> Iterator[Payload]:
    """A call of an agent, which reports the tools that it used."""
    yield draw(
        st.builds(
            AgentSent,
            agent=words,
            adapter=words,
            call=st.just(call),
            attempt=st.just(attempt),
            after=st.integers(0, call - 1),
            messages=messages,
        )
    )
    if draw(st.booleans()):
        yield draw(st.builds(AgentFailed, call=st.just(call), **failures))
        return
    used = st.builds(
        AgentToolUse,
        index=st.just(index),
        use=st.builds(ToolUse, calls, words),
    )
    yield draw(
        st.builds(
            AgentReplied, call=st.just(call), tool_calls=st.lists(used, max_size=1), **replies
        )
    )


def attempt_of_execution(draw: st.DrawFn, suite: int, number: int) -> Iterator[Payload]:
    """One attempt; like one that was cut off, it may end anywhere."""
    yield draw(
        st.builds(
            ExecutionStarted,
            suite=st.just(suite),
            test=words,
            target=words,
            repeat=st.integers(1, 3),
            attempt=st.just(number),
            tags=warnings,
            messages=messages,
            tools=st.none() | authored,
        )
    )
    kinds = draw(st.lists(st.sampled_from([of_model, of_agent]), max_size=3))
    for place, kind in enumerate(kinds):
        yield from kind(draw, place + 1, place + 1, place)
    for index in range(draw(st.integers(0, 2))):
        yield draw(
            st.builds(
                AssertionEvaluated,
                index=st.just(index),
                result=st.builds(
                    CheckResult,
                    kind=words,
                    label=words,
                    outcome=st.sampled_from(Outcome),
                    score=maybe_amounts,
                    threshold=maybe_amounts,
                    failure_code=st.none() | st.sampled_from(sorted(codes())),
                    message=authored,
                    expected=st.none() | authored,
                    actual=st.none() | authored,
                    evidence=st.lists(
                        st.builds(Evidence, source=words, start=st.just(0), end=st.just(9)),
                        max_size=1,
                    ),
                    reasoning=st.none() | authored,
                ),
            )
        )
    yield draw(
        st.builds(
            ExecutionFinished,
            status=st.sampled_from(Status),
            error_code=st.none() | words,
            error=st.none() | authored,
            output=st.none() | authored,
            answers=st.integers(0, 3),
            latency_ms=amounts,
            finish_reason=st.none() | st.sampled_from(FinishReason),
            **usage,
        )
    )


def of_suite(draw: st.DrawFn, ordinal: int) -> Payload:
    about = {"suite": words, "ordinal": st.just(ordinal), "path": words}
    if draw(st.booleans()):
        return draw(
            st.builds(
                SuiteSkipped,
                tests=st.integers(0, 9),
                error_code=words,
                error_number=st.just(101),
                message=authored,
                hint=st.none() | authored,
                **about,
            )
        )
    test = st.builds(PlannedTest, name=words, target=words, tags=warnings)
    gate = st.builds(Gate, name=words, threshold=amounts, written=st.booleans())
    return draw(
        st.builds(
            SuiteStarted,
            project=words,
            front_end=words,
            config_hash=words,
            config=authored,
            gates=st.lists(gate, max_size=2),
            baseline_run=st.none() | words,
            tests=st.lists(test, max_size=3),
            **about,
        )
    )


def of_run(draw: st.DrawFn) -> Iterator[NewEvent]:
    """A run: resumed a few times, each time with new attempts, and perhaps finished at last."""
    yield new_event(
        draw(
            st.builds(
                RunStarted,
                project=words,
                planned=st.integers(0, 9),
                label=st.none() | words,
                versions=st.dictionaries(words, words, max_size=1),
            )
        )
    )
    attempts = {1: 0, 2: 0}
    for _ in range(draw(st.integers(1, 3))):
        for ordinal in range(draw(st.integers(0, 2))):
            yield new_event(of_suite(draw, ordinal))
        several = []
        for number in draw(st.lists(st.sampled_from([1, 2]), max_size=2, unique=True)):
            attempts[number] += 1
            payloads = list(attempt_of_execution(draw, number - 1, attempts[number]))
            kept = payloads[: draw(st.integers(1, len(payloads)))]
            subject = f"{number}.{attempts[number]}"
            several.append([new_event(payload, subject=subject) for payload in kept])
        yield from interleaved(draw, several)
        ended = draw(st.sampled_from([RunInterrupted, RunAborted]))
        yield new_event(ended(reason=draw(words)))
        yield new_event(RunResumed(by=draw(words), planned=draw(st.integers(0, 9))))
        if draw(st.booleans()):
            yield new_event(RunExtended(planned=draw(st.integers(0, 9))))
    if draw(st.booleans()):
        gate = st.builds(
            GateResult,
            name=st.just("passRateMin"),
            threshold=amounts,
            actual=maybe_amounts,
            passed=st.booleans(),
            written=st.booleans(),
            message=words,
        )
        verdict = st.builds(GateVerdict, suite=st.just("r/0"), result=gate)
        yield new_event(
            RunFinished(
                passed=draw(st.booleans()),
                exit_code=0,
                gates=draw(st.lists(verdict, max_size=1)),
                tests={},
                executions={},
                duration_ms=draw(amounts),
            )
        )


runs = st.sampled_from(["0", "1", "unknown"])
journal_events = st.one_of(
    st.builds(RunLabelled, run=runs, label=st.none() | words, by=words),
    st.builds(
        ReviewRecorded,
        run=runs,
        execution=st.integers(1, 3),
        passed=st.booleans(),
        note=st.none() | authored,
        by=words,
    ),
    st.builds(RunSealed, run=runs, head=words),
    st.builds(BaselineSet, project=words, suite=words, run=runs, label=st.none() | words, by=words),
    st.builds(BaselineRemoved, project=words, suite=words, by=words),
).map(new_event)


def interleaved(draw: st.DrawFn, sequences: Sequence[Sequence[Any]]) -> list[Any]:
    """Any mix of sequences that keeps the order of each."""
    turns = [place for place, sequence in enumerate(sequences) for _ in sequence]
    draw(st.randoms(use_true_random=False)).shuffle(turns)
    ahead = [iter(sequence) for sequence in sequences]
    return [next(ahead[place]) for place in turns]


@st.composite
def histories(draw: st.DrawFn) -> list[Append]:
    """Appends to the streams of several runs and journals, as several processes make them."""
    streams = {f"run/{number}": list(of_run(draw)) for number in range(draw(st.integers(1, 2)))}
    for number in range(2):
        streams[f"journal/{number}"] = draw(st.lists(journal_events, max_size=3))
    return interleaved(
        draw, [[Append(name, (event,)) for event in events] for name, events in streams.items()]
    )


@st.composite
def disordered_histories(draw: st.DrawFn) -> list[Append]:
    """Histories whose events come in any order, some of them not at all: kindlm writes no such."""
    appends = draw(histories())
    draw(st.randoms(use_true_random=False)).shuffle(appends)
    return appends[draw(st.integers(0, 3)) :] or appends


def tables(log: EventLog) -> Tables:
    """All rows of all tables of the projections, and of the views over them."""
    names = [name for each in PROJECTIONS for name in (*each.tables, *each.views)]
    with closing(log.reader()) as reader:
        return {
            name: sorted((tuple(row) for row in reader.execute(f"SELECT * FROM {name}")), key=repr)
            for name in names
        }


@examples(15)
@given(
    histories() | disordered_histories(),
    st.randoms(use_true_random=False),
    st.sampled_from([0, 0.1, 1]),
)
def test_any_history_is_folded_without_error_and_rebuilt_the_same(
    appends: list[Append], chance: random.Random, commits: float
) -> None:
    """Wherever the batches end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EventLog.open(Path(folder) / "kindlm.db", projections=PROJECTIONS) as log,
    ):
        for append in appends:
            log.submit(append)
            if chance.random() < commits:
                log.flush().result()
        log.flush().result()
        folded = tables(log)
        assert log.projection_errors() == {}
        log.rebuild()
        assert tables(log) == folded
        assert log.projection_errors() == {}


def purge(log: EventLog, stream: str) -> None:
    """Erase the texts of a run, as `kindlm history purge` does."""
    purged = ContentsPurged(texts=1, runs=[stream.removeprefix("run/")], matching=False, by="me")
    journal = f"journal/purges-{log.path.stem}"
    erase(
        log,
        find_erasable(log, [stream]),
        lambda _: Append(journal, (new_event(purged),)),
    )


def merge(source: EventLog, into: EventLog) -> None:
    with closing(open_reader(source.path)) as reader:
        Merge(into, reader, source.path, accept=lambda _: None, erasures=PURGES).take(together=True)


@examples(4)
@given(histories(), st.randoms(use_true_random=False))
def test_histories_that_were_purged_have_the_same_tables_in_whatever_order_they_are_merged(
    appends: list[Append], chance: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        one, other, forwards, backwards = (
            opened.enter_context(
                EventLog.open(Path(folder) / f"{name}.db", projections=PROJECTIONS)
            )
            for name in ("one", "other", "forwards", "backwards")
        )
        written = {append.stream: chance.choice([one, other]) for append in appends}
        for append in appends:
            written[append.stream].submit(append)
        for stream, log in written.items():
            log.flush().result()
            if stream.startswith("run/") and chance.random() < 0.5:
                purge(log, stream)
        for into, sources in ((forwards, (one, other)), (backwards, (other, one)), (one, (other,))):
            for source in sources:
                merge(source, into)
        merged = tables(forwards)
        for log in (one, backwards, forwards):
            assert tables(log) == merged
            log.rebuild()
            assert tables(log) == merged
            assert log.projection_errors() == {}
