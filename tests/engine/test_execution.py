"""One execution against a real event log: conversation, checks, errors, what is recorded."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from evaluated import demand

from kindlm.engine.calls import MAX_RESENDS, fingerprint
from kindlm.errors import ErrorCode, Ok
from kindlm.outcome import NOTHING_CHECKED, Status
from kindlm.ports import Provenance
from kindlm.providers import openai_provider
from kindlm.providers.client import WireClient
from kindlm.providers.provider_failures import Endpoint, HttpAnswer
from kindlm.suite import ModelTarget, Prompt
from kindlm.transcript import Cost, FinishReason, Role, ToolCall


def test_an_answer_that_meets_its_expectations_passes(bench, make):
    finished = bench.execute(make.case(expectations=(make.contains("hello"),)))
    assert finished.status is Status.PASSED
    assert [event.type for event in bench.events()] == [
        "execution.started",
        "provider.requested",
        "provider.responded",
        "assertion.evaluated",
        "execution.finished",
    ]


def test_the_duration_of_a_check_is_the_time_that_it_took(bench, make):
    bench.clock.now = 100.0
    bench.execute(make.case(expectations=(make.contains("Hello"),)))
    (event,) = bench.events("assertion.evaluated")
    assert event.data["duration_ms"] == 0


def test_an_answer_that_misses_an_expectation_fails_and_says_which(bench, make):
    finished = bench.execute(make.case(expectations=(make.contains("goodbye"),)))
    assert finished.status is Status.FAILED
    (failed,) = finished.failed
    assert (failed.kind, failed.label) == ("contains", "goodbye")


@pytest.mark.parametrize(
    ("crash", "variable"),
    [
        (FileNotFoundError("no such file"), "SSL_CERT_FILE"),
        (ValueError("Unknown scheme for proxy URL URL('socks://127.0.0.1')"), "ALL_PROXY"),
    ],
)
def test_a_client_that_cannot_connect_names_the_variables(
    bench, make, monkeypatch, crash, variable
):
    def client(_: object) -> None:
        raise crash

    monkeypatch.setattr(type(bench), "client", property(client), raising=False)
    error = bench.execute(make.case()).error
    assert error is not None
    assert variable in error.hint


def test_the_first_messages_are_system_then_user(bench, make):
    bench.execute(make.case())
    (request,) = bench.client.requests
    assert [(m.role, m.text) for m in request.messages] == [
        (Role.SYSTEM, "Be kind"),
        (Role.USER, "Hello"),
    ]


def test_tool_calls_are_answered_and_the_next_request_holds_both(bench, make):
    bench.queue(make.reply("", make.call(id="1")), make.reply("done"))
    tool = make.tool("lookup", ({"id": "1"}, {"found": True}))
    assert bench.execute(make.case(tools=(tool,))).status is Status.PASSED
    _, second = bench.client.requests
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "tool"]
    assert second.messages[3].text == '{"found": true}'
    assert second.messages[3].tool_call_id == "call_1"
    called, simulated = bench.events("tool.called", "tool.simulated")
    assert called.data["call"] == 1
    assert bench.json(called.data["arguments"]) == {"id": "1"}
    assert bench.json(simulated.data["response"]) == {"found": True}
    assert simulated.data["rule"] == "responses[0]"


def test_a_request_names_what_it_continues_and_holds_only_what_is_new(bench, make):
    bench.queue(make.reply("", make.call()), make.reply("", make.call()), make.reply("done"))
    bench.execute(make.case(tools=(make.tool(default="ok"),)))
    requests = bench.events("provider.requested")
    assert [event.data["after"] for event in requests] == [0, 1, 2]
    assert [len(event.data.get("messages", [])) for event in requests] == [0, 1, 1]


def test_parallel_calls_are_answered_in_one_round_in_order(bench, make):
    bench.queue(make.reply("", make.call("a", "c1"), make.call("b", "c2")), make.reply("both"))
    tools = (make.tool("a", default=0), make.tool("b", default=None))
    bench.execute(make.case(tools=tools))
    _, second = bench.client.requests
    answers = [(m.tool_call_id, m.text) for m in second.messages if m.role is Role.TOOL]
    assert answers == [("c1", "0"), ("c2", "null")]


def test_a_text_goes_to_the_model_as_it_is(bench, make):
    bench.queue(make.reply("", make.call()), make.reply("done"))
    bench.execute(make.case(tools=(make.tool(default="plain words"),)))
    assert bench.client.requests[1].messages[-1].text == "plain words"


def test_the_prefill_is_replaced_by_the_answer_that_begins_with_it(bench, make):
    bench.queue(make.reply("{ now", make.call()), make.reply("done"))
    prompt = Prompt("Hello", prefill="{")
    bench.execute(make.case(prompt=prompt, tools=(make.tool(default=1),)))
    first, second = bench.client.requests
    assert first.messages[-1].prefill
    assert [m.text for m in second.messages if m.role is Role.ASSISTANT] == ["{ now"]


def test_the_turn_limit_is_an_error_but_the_assertions_are_shown(bench, make):
    bench.queue(make.reply("still at it", make.call()))
    case = make.case(
        tools=(make.tool(default="ok"),), max_turns=3, expectations=(make.contains("at it"),)
    )
    finished = bench.execute(case)
    assert finished.status is Status.ERRORED
    assert finished.error is not None
    assert finished.error.code is ErrorCode.ENGINE_MAX_TURNS
    assert "maxTurns (3)" in finished.error.message
    assert len(bench.client.requests) == 3
    assert len(bench.events("assertion.evaluated")) == 1


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_answer_is_an_error(bench, make, text):
    bench.queue(make.reply(text, finish_reason=FinishReason.MAX_TOKENS))
    finished = bench.execute(make.case(expectations=(make.contains("x"),)))
    assert finished.error is not None
    assert finished.error.code is ErrorCode.ENGINE_EMPTY_RESPONSE
    assert "(finish reason: max_tokens)" in finished.error.message
    assert bench.events("assertion.evaluated") == []


@pytest.mark.parametrize("kept", [True, False])
def test_bodies_are_recorded_unless_the_suite_leaves_them_out(bench, make, kept):
    failure = make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, body="busy")
    bench.queue(failure, make.reply("Hi", raw='{"said": "Hi"}'))
    bench.execute(make.case(), record_raw_bodies=kept)
    calls = bench.events("provider.failed") + bench.events("provider.responded")
    assert [("raw" in event.data) for event in calls] == [kept, kept]


@pytest.mark.parametrize(("text", "warned"), [("The key is [redacted].", True), ("Hi", False)])
def test_a_recorded_answer_without_its_secret_is_warned_of(bench, make, text, warned):
    then = Ok(make.reply(text, recorded=Provenance("k3f9x2ab-1.1/1", Cost(0.0))))
    bench.answers = lambda _: SimpleNamespace(answer=lambda _: then)
    bench.execute(make.case(expectations=(make.contains("e"),)))
    (event,) = bench.events("execution.finished")
    warnings = map(bench.text, event.data.get("warnings", ()))
    assert any("removed a secret" in warning for warning in warnings) is warned


def test_what_can_go_better_is_tried_again_and_each_try_is_an_event(bench, make):
    limited = make.failure(ErrorCode.PROVIDER_RATE_LIMIT, retryable=True, retry_after=3.0)
    broken = make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, status=500)
    bench.queue(limited, broken, make.reply("at last"))
    assert bench.execute(make.case()).status is Status.PASSED
    first, second = bench.events("provider.failed")
    assert first.data["retry_in_ms"] == 3000
    assert (second.data["status"], second.data["call"]) == (500, 2)
    assert bench.clock.slept[0] == 3.0
    attempts = [event.data["attempt"] for event in bench.events("provider.requested")]
    assert attempts == [1, 2, 3]


class NoTemperature:
    """Carries requests to a model that takes no temperature."""

    async def send(self, body: bytes) -> HttpAnswer:
        if "temperature" in json.loads(body):
            refusal = {"error": {"message": "Unsupported parameter", "param": "temperature"}}
            return HttpAnswer(400, {}, json.dumps(refusal))
        choice = {"message": {"content": "Hello there"}, "finish_reason": "stop"}
        return HttpAnswer(200, {}, json.dumps({"choices": [choice]}))

    async def aclose(self) -> None:
        return


def test_a_default_that_the_model_refuses_costs_an_attempt_on_record_and_no_retry(bench, make):
    endpoint = Endpoint("p", "http://model.invalid")
    bench.client = WireClient(endpoint, openai_provider.WIRE, NoTemperature())
    finished = bench.execute(make.case(), retries=0)
    assert finished.status is Status.PASSED
    calls = [event for event in bench.events() if event.type.startswith("provider.")]
    assert [(event.type, event.data["call"]) for event in calls] == [
        ("provider.requested", 1),
        ("provider.failed", 1),
        ("provider.requested", 2),
        ("provider.responded", 2),
    ]
    assert (calls[1].data["status"], calls[1].data["retry_in_ms"]) == (400, 0)
    assert bench.warnings(calls[3]) == ["`temperature` was not sent: model-1 does not take it"]


def test_requests_that_are_sent_again_are_no_retries(bench, make):
    again = make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, resend=True)
    broken = make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, status=500)
    bench.queue(again, broken, again, make.reply("at last"))
    assert bench.execute(make.case(), retries=1).status is Status.PASSED
    assert [seconds > 0 for seconds in bench.clock.slept] == [False, True, False]


def test_requests_are_not_sent_again_for_ever(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, resend=True))
    assert bench.execute(make.case(), retries=9).status is Status.ERRORED
    assert len(bench.client.requests) == 1 + MAX_RESENDS
    assert "retry_in_ms" not in bench.events("provider.failed")[-1].data


def test_retries_end_with_the_last_error(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_TIMEOUT, retryable=True))
    finished = bench.execute(make.case(), retries=2)
    assert finished.status is Status.ERRORED
    assert len(bench.client.requests) == 3
    (end,) = bench.events("execution.finished")
    assert (end.data["error_code"], end.data["error_number"]) == ("PROVIDER_TIMEOUT", 203)
    assert "retry_in_ms" not in bench.events("provider.failed")[-1].data


def test_what_cannot_go_better_is_not_tried_again(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_AUTH_ERROR, retryable=False))
    bench.execute(make.case())
    assert len(bench.client.requests) == 1


def test_a_crash_of_our_own_marks_the_execution_and_keeps_the_trace(bench, make):
    bench.queue(RuntimeError("a bug"))
    finished = bench.execute(make.case())
    assert finished.status is Status.ERRORED
    (end,) = bench.events("execution.finished")
    assert end.data["error_code"] == "UNKNOWN_ERROR"
    assert "RuntimeError: a bug" in (bench.text(end.data["trace"]) or "")


@pytest.mark.parametrize("port", ["transcripts", "answers"])
def test_a_record_that_cannot_be_read_marks_its_execution_alone(bench, make, monkeypatch, port):
    nothing = SimpleNamespace(agent=lambda: None, answer=lambda asked: None)

    def read(execution):
        if execution.case.name == "broken":
            raise TypeError("no such row")
        return "not held" if port == "transcripts" else nothing

    ports = bench._ports
    monkeypatch.setattr(bench, "_ports", lambda each: replace(ports(each), **{port: read}))
    cases = [make.case(name, expectations=(make.contains("Hello"),)) for name in ("broken", "fine")]
    assert asyncio.run(bench.run([make.suite(*cases)]))
    ended = {event.subject: event.data for event in bench.events("execution.finished")}
    fine = "skipped" if port == "transcripts" else "passed"
    assert [ended[subject]["status"] for subject in ("1.1", "2.1")] == ["errored", fine]
    assert "TypeError" in bench.text(ended["1.1"]["error"])
    assert "no such row" in bench.text(ended["1.1"]["trace"])
    assert len(bench.events("execution.started")) == 2


def test_arguments_that_are_no_json_are_recorded_as_written(bench, make):
    bad = ToolCall("c", "lookup", {}, malformed='{"id": ')
    bench.queue(make.reply("", bad), make.reply("sorry"))
    bench.execute(make.case(tools=(make.tool(default="ok"),)))
    (called,) = bench.events("tool.called")
    assert bench.text(called.data["arguments"]) == '{"id": '


def test_usage_latency_and_cost_are_those_of_all_answers(bench, make):
    bench.queue(
        make.reply("", make.call(), reported_cost_usd=0.25), make.reply("ok", reported_cost_usd=0.5)
    )
    bench.execute(make.case(tools=(make.tool(default="ok"),)))
    (end,) = bench.events("execution.finished")
    assert end.data["gen_ai.usage.input_tokens"] == 20
    assert end.data["gen_ai.usage.output_tokens"] == 10
    assert end.data["latency_ms"] == 200
    assert (end.data["cost_usd"], end.data["cost_source"]) == (0.75, "reported")


def test_tokens_of_what_was_never_answered_are_unknown(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_AUTH_ERROR, retryable=False))
    bench.execute(make.case())
    (end,) = bench.events("execution.finished")
    assert end.data["status"] == "errored"
    assert "gen_ai.usage.input_tokens" not in end.data
    assert "gen_ai.usage.output_tokens" not in end.data


def test_a_cost_that_is_not_known_makes_the_sum_unknown(bench, make):
    bench.queue(make.reply("", make.call(), reported_cost_usd=0.25), make.reply("ok"))
    bench.execute(make.case(tools=(make.tool(default="ok"),)))
    (end,) = bench.events("execution.finished")
    assert "cost_usd" not in end.data
    assert end.data["cost_source"] == "unknown"


def test_an_answer_that_was_cut_off_is_a_warning(bench, make):
    bench.queue(make.reply("half an ans", finish_reason=FinishReason.MAX_TOKENS))
    finished = bench.execute(make.case())
    assert finished.status is Status.PASSED
    (end,) = bench.events("execution.finished")
    assert bench.warnings(end) == ["The answer was cut off at maxTokens.", NOTHING_CHECKED]


def test_names_that_a_model_makes_up_are_bounded_in_the_event(bench, make):
    bench.queue(make.reply("", make.call("x" * 5000)), make.reply("ok"))
    bench.execute(make.case())
    (called,) = bench.events("tool.called")
    assert len(called.data["gen_ai.tool.name"]) == 200


class TestJudge:
    """Questions to a judge go through the same retries and records as the tested model."""

    def judged(self, bench, make, *answers):
        bench.queue(make.reply("Hello there"), *answers)
        params = {"criteria": "Is kind", "minScore": 0.7, "model": None, "rubric": None}
        expectation = demand("judge", "Is kind", params)
        models = {
            "m": ModelTarget("m", "p", "model-1"),
            "j": ModelTarget("j", "p", "judge-1"),
        }
        case = make.case(expectations=(expectation,))
        return bench.execute(case, models=models, judge_model="j")

    def test_the_judge_model_is_asked_at_temperature_zero(self, bench, make):
        finished = self.judged(bench, make, make.reply('{"score": 0.9, "reasoning": "warm"}'))
        assert finished.status is Status.PASSED
        question = bench.client.requests[1]
        assert (question.model, question.params.temperature) == ("judge-1", 0.0)
        assert question.response_schema is not None

    def test_its_call_is_recorded_apart_from_the_test(self, bench, make):
        self.judged(bench, make, make.reply('{"score": 0.9, "reasoning": "warm"}'))
        requests = bench.events("provider.requested")
        assert [event.data["purpose"] for event in requests] == ["test", "judge"]
        assert "after" not in requests[1].data

    def test_equal_questions_have_equal_fingerprints_whatever_their_boundary(self, bench, make):
        unclear = make.reply("hm")
        self.judged(bench, make, unclear)
        _, first, again = bench.events("provider.requested")
        assert first.data["fingerprint"] == again.data["fingerprint"]
        assert first.data["messages"] == again.data["messages"]
        sent = [request.messages[-1].text for request in bench.client.requests[1:]]
        assert sent[0] != sent[1]

    def test_a_judge_that_cannot_be_understood_makes_the_execution_errored(self, bench, make):
        finished = self.judged(bench, make, make.reply("I cannot say"))
        assert finished.status is Status.ERRORED
        (event,) = bench.events("assertion.evaluated")
        assert event.data["gen_ai.evaluation.score.label"] == "inconclusive"
        assert event.data["failure_code"] == "JUDGE_EVAL_ERROR"


def test_a_wait_that_goes_beyond_the_time_of_the_execution_is_not_waited_for(bench, make):
    bench.queue(make.failure(ErrorCode.PROVIDER_RATE_LIMIT, retryable=True, retry_after=86_400.0))
    finished = bench.execute(make.case(), execution_timeout_ms=300_000)
    assert finished.error is not None
    assert finished.error.code is ErrorCode.PROVIDER_RATE_LIMIT
    assert bench.clock.slept == []


def test_a_check_that_the_end_of_the_time_cuts_off_makes_the_execution_errored(bench, make):
    class Endless:
        def evaluate(self, *_):
            return asyncio.Event().wait()

    bench.checker = Endless()
    expectation = make.contains("Hello")
    finished = bench.execute(make.case(expectations=(expectation,)), execution_timeout_ms=500)
    assert finished.error.code is ErrorCode.PROVIDER_TIMEOUT


@pytest.mark.usefixtures("impatient_patterns")
def test_many_slow_arguments_end_with_the_time_of_the_execution(bench, make):
    slow = {"properties": {"id": {"pattern": "^(a|a)*$"}}}
    bench.queue(make.reply("", *(make.call(call_id=f"c{n}", id="a" * 60 + "!") for n in range(99))))
    case = make.case(tools=(make.tool(parameters=slow, default=1),))
    finished = bench.execute(case, execution_timeout_ms=500)
    assert finished.error.code is ErrorCode.PROVIDER_TIMEOUT
    assert len(bench.events("tool.simulated")) < 50


def test_a_call_that_the_end_of_the_time_cuts_off_is_recorded_as_failed(bench, make):
    bench.client.never_answers = True
    finished = bench.execute(make.case(), execution_timeout_ms=500)
    assert finished.error is not None
    assert finished.error.code is ErrorCode.PROVIDER_TIMEOUT
    assert "defaults.executionTimeoutMs" in finished.error.hint
    (failed,) = bench.events("provider.failed")
    assert failed.data["error_code"] == "PROVIDER_TIMEOUT"
    with closing(bench.log.reader()) as reader:
        rows = reader.execute("SELECT status FROM provider_calls").fetchall()
    assert [tuple(row) for row in rows] == [("failed",)]


def test_a_judge_that_never_answers_ends_with_the_time_of_the_execution(bench, make):
    bench.queue(make.reply("Hello there"))
    bench.client.silent_after = 1
    params = {"criteria": "Is kind", "minScore": 0.7, "model": None, "rubric": None}
    judge = demand("judge", "Is kind", params)
    case = make.case(expectations=(make.contains("hello"), judge))
    finished = bench.execute(case, execution_timeout_ms=500)
    assert finished.status is Status.ERRORED
    assert len(bench.events("assertion.evaluated")) == 1


def test_a_judge_call_names_the_assertion_it_was_made_for(bench, make):
    bench.queue(make.reply("Hello there"), make.reply('{"score": 0.9, "reasoning": "warm"}'))
    params = {"criteria": "Is kind", "minScore": 0.7, "model": None, "rubric": None}
    judge = demand("judge", "Is kind", params, turn=1)
    bench.execute(make.case(expectations=(make.contains("hello"), judge)))
    test, judging = bench.events("provider.requested")
    assert "assertion" not in test.data
    assert judging.data["assertion"] == 1
    assert bench.events("assertion.evaluated")[1].data["turn"] == 1


def test_what_differs_only_in_malformed_arguments_is_another_request(bench, make):
    bench.queue(make.reply("", ToolCall("c", "t", {}, malformed='{"id": ')), make.reply("ok"))
    bench.execute(make.case())
    first = bench.events("provider.requested")[1].data["fingerprint"]
    request = bench.client.requests[1]
    other = ToolCall("c", "t", {}, malformed='{"no": ')
    changed = [replace(m, tool_calls=(other,)) if m.tool_calls else m for m in request.messages]
    assert fingerprint("p", request) == first
    assert fingerprint("p", replace(request, messages=tuple(changed))) != first


def test_an_expectation_that_only_advises_decides_nothing(bench, make):
    advice = replace(make.contains("goodbye"), advisory=True)
    finished = bench.execute(make.case(expectations=(advice, make.contains("hello"))))
    assert (finished.status, finished.failed) == (Status.PASSED, ())
    evaluated = bench.events("assertion.evaluated")
    assert [event.data.get("advisory", False) for event in evaluated] == [True, False]
    assert evaluated[0].data["failure_code"] == "CONTAINS_FAILED"


def test_a_check_sees_the_results_before_it(bench, make):
    verdict = demand("evalview_verdict", "EvalView", {"minScore": 0})
    score = demand("weighted_score", "score", {"minScore": 90}, advisory=True)
    expectations = (replace(make.contains("goodbye"), advisory=True), score, verdict)
    finished = bench.execute(make.case(expectations=expectations))
    assert finished.status is Status.PASSED
    *_, last = bench.events("assertion.evaluated")
    assert bench.json(last.data["actual"])["kindlm"] == "failed"
