"""The vectors of scenarios that are about checks, trials, and which files hold tests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from scenario_departures import CHECKS, FOUND, TITLES, TRIALS
from scenario_project import Project, new_project, serving_agent
from vector_cases import known, unknown

from kindlm import Persona, Reply, Trial, scenario
from kindlm.checks import CheckRunner
from kindlm.engine.stage import ScriptedTrial
from kindlm.engine.stop import Clock
from kindlm.engine.talk import HeldTalk
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.events.codec import Payload
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import HeldConversation, ModelReply, Question
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Usage

Vector = dict[str, Any]

KINDS: Final = {
    "notContains": "not_contains",
    "jsonSchema": "json_schema",
    "tokenUsage": "token_usage",
    "toolCalled": "tool_called",
    "toolNotCalled": "tool_not_called",
    "llmJudge": "judge",
}

ASSERTIONS: Final = tuple(
    f"assert.{kind}"
    for kind in ("contains", "notContains", "matches", "jsonSchema", "latency", "tokenUsage",
                 "toolCalled", "toolNotCalled")
)  # fmt: skip
# What decides nothing about a match is not told by a flag of ours.
FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "g": 0, "u": 0}
TYPES: Final = {"string", "number", "integer", "boolean", "array", "object", "null"}
SHOWN: Final = ("shown", "actual_chars", "has_error", "tools_seen", "outcome", "passed")
"""What a check tells a reader, which is a message and no part of a case."""
JUDGED: Final = tuple(
    f"assert.{kind}" for kind in ("llmJudge", "sentiment", "guardrail", "factuality", "custom")
)


class _Recorder:
    """Keeps nothing: what comes of checks is asked of the trial."""

    def record(self, payload: Payload) -> None:
        """Let an event go."""


class _Checking:
    """Sends one message, and asks for a check of the answer; implements `suite.Script`."""

    def __init__(self, ask: Callable[[Trial, Reply], object]) -> None:
        self._ask = ask

    async def run(self, stage: Any) -> None:
        t = Trial(stage, lambda: SourceLocation("x"))
        self._ask(t, await t.agent.send("hi"))


class _Judge:
    """Answers as it is told to, and counts how often it is asked."""

    def __init__(self, answer: Any) -> None:
        self.asked = 0
        self.recorder = _Recorder()
        self._answer = answer

    async def ask(self, _assertion: int | None, _question: Question) -> Result[ModelReply]:
        self.asked += 1
        if isinstance(self._answer, dict):
            return Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, self._answer["raises"]))
        return Ok(ModelReply(self._answer, self._answer, 1.0))


def checked(
    response: Vector, ask: Callable[[Trial, Reply], object], judge: _Judge | None = None
) -> CheckResult:
    """Return what one check of an answer finds."""

    async def trial() -> CheckResult:
        stage: Any = ScriptedTrial(
            _answering(response),
            judge or _Judge(""),  # type: ignore[arg-type]
            CheckRunner(),
            Clock(),
        )
        assert await stage.play(_Checking(ask)) is None
        found: CheckResult
        (found,) = stage.results
        return found

    return asyncio.run(trial())


def _answering(response: Vector) -> HeldTalk:
    known(response, "text", "toolCalls", "tokenUsage", "latencyMs")
    usage = response.get("tokenUsage")
    step = Step(
        text=response["text"],
        tool_uses=tuple(
            ToolUse(ToolCall("1", call["name"], call["arguments"]), None, "agent")
            for call in response.get("toolCalls", ())
        ),
        usage=Usage(usage["input"], usage["output"]) if usage else Usage(),
        latency_ms=response.get("latencyMs", 0.0),
    )
    said = Transcript().with_turn("hi").with_step(step)
    return HeldTalk(HeldConversation("x.1", said, ()))


@pytest.mark.vectors("scenario.jsonl", *ASSERTIONS, departures=CHECKS, beside=("type", *SHOWN))
def test_local_check(vector: Vector) -> None:
    given = vector["input"]
    kind = vector["area"].removeprefix("assert.")
    name, arg = KINDS.get(kind, kind), given["arg"]
    if kind not in {"matches", "jsonSchema", "latency", "tokenUsage"} and not isinstance(arg, str):
        unknown(f"arg {arg}")
    if kind == "matches":
        known(arg, "regex", "flags")
        if set(arg.get("flags", "")) - set(FLAGS):
            unknown(f"flags {arg['flags']}")
        arg = re.compile(arg["regex"], sum(FLAGS[flag] for flag in arg.get("flags", "")))
    elif kind == "jsonSchema":
        known(arg, "schema")
        if set(map(str, arg["schema"].values())) - TYPES:
            unknown(f"schema {arg['schema']}")
        members = {key: {"type": value} for key, value in arg["schema"].items()}
        arg = {"type": "object", "properties": members, "required": list(members)}
    elif kind in ("latency", "tokenUsage"):
        arg = known(arg, "max")["max"]

    def ask(t: Trial, reply: Reply) -> None:
        getattr(t.check(reply), name)(arg)

    if (error := vector["expected"].get("error")) is not None:
        with pytest.raises(ValueError, match=error):
            checked(given["response"], ask)
        return
    assert checked(given["response"], ask).outcome is outcome_of(vector["expected"])


@pytest.mark.vectors("scenario.jsonl", *JUDGED, departures=CHECKS, beside=("type", *SHOWN))
def test_model_check(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    kind = vector["area"].removeprefix("assert.")
    judge = _Judge(_in_our_form(given["judge_reply"]))
    found = checked(given["response"], lambda t, reply: _ask(kind, t, reply, given["arg"]), judge)
    assert found.outcome is outcome_of(expected)
    assert judge.asked == expected["judge_calls"]
    if "reasoning" in expected:
        assert found.reasoning == expected["reasoning"]


def outcome_of(expected: Vector) -> Outcome:
    """Return what a check is expected to come to; the cases know no third way."""
    return Outcome(expected.get("outcome", "passed" if expected["passed"] else "failed"))


def _ask(kind: str, t: Trial, reply: Reply, arg: Any) -> None:
    if kind == "llmJudge":
        known(arg, "criteria", "threshold")
        t.judge(reply, arg["criteria"], threshold=arg["threshold"], scale=5)
    elif kind == "sentiment":
        t.sentiment(reply, arg)
    elif kind == "guardrail":
        t.guardrail(reply, must_not=known(arg, "mustNot")["mustNot"])
    elif kind == "factuality":
        t.factuality(reply, known(arg, "groundTruth")["groundTruth"])
    else:
        t.check(reply).custom(arg["name"], lambda _: _returned(arg["returns"]))


def _returned(told: Any) -> Any:
    if not isinstance(told, str):
        return told
    if thrown := re.fullmatch(r"(?:async )?throws '(.*)'", told):
        raise ValueError(thrown[1])
    if told not in {"async false", "async true"}:
        unknown(f"returns {told}")

    async def later() -> bool:
        return told == "async true"

    return later()


def _in_our_form(answer: Any) -> Any:
    """Return a judge's answer with our names of the same decisions."""
    try:
        said = json.loads(answer)
    except (TypeError, ValueError):
        return answer
    names = {"matches": "conveyed", "passed": "kept"}
    ours = {names.get(key, key): value for key, value in said.items()}
    if {"conveyed", "kept", "factual"} & ours.keys():
        ours.setdefault("quote", "")
    return json.dumps(ours)


@pytest.mark.vectors("scenario.jsonl", "response.mentions")
def test_mentions(vector: Vector) -> None:
    reply = Reply(vector["input"]["text"], (), None, 0.0, "", 1, False)
    assert reply.mentions(vector["input"]["arg"]) == vector["expected"]["value"]


@pytest.mark.vectors("scenario.jsonl", "scenario.persona")
def test_persona(vector: Vector) -> None:
    message = Persona(**vector["input"]["persona"]).says(vector["input"]["says"])
    assert message.text == vector["expected"]["message"]
    assert message.persona.role == vector["expected"]["persona_role"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "scenario.validate",
    ignores=("object",),
    beside=("error_count", "warning_count"),
)
def test_validate(vector: Vector) -> None:
    value = known(vector["input"]["value"] or {}, "name", "fn")
    if value.get("fn", "function") != "function":
        unknown(f"fn {value['fn']}")

    def test_it(t: Trial) -> None:
        """Do nothing."""

    try:
        scenario(value.get("name"))(test_it if "fn" in value else None)  # type: ignore[arg-type,type-var]
    except (TypeError, ValueError):
        assert not vector["expected"]["valid"]
    else:
        assert vector["expected"]["valid"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    with serving_agent() as agent:
        agent.answer = lambda request: {"message": f"echo {request['message']}"}
        yield new_project(tmp_path, agent)


def body(*lines: str, name: str = "x") -> str:
    """Return a scenario whose function has these lines."""
    head = f'\n@scenario("{name}")\nasync def test_{name.lower()}(t: Trial) -> None:\n'
    return head + "".join(f"    {line}\n" for line in lines)


OK_CHECK = 't.check(reply).contains("hi")'
STEPS: Final = {
    "send hi": 'reply = await t.agent.send("hi")',
    "assert contains hi": OK_CHECK,
    "send": 'reply = await t.agent.send("hi")',
    "assert ok": OK_CHECK,
    "raise 'user bug'": 'raise ValueError("user bug")',
    "adapter raises 'conn refused' on the first send": 'await t.agent.send("hi")',
    "always fails": 't.check(await t.agent.send("hi")).contains("bye")',
    "persona says one, then two": (
        'karen = Persona(role="user"); await t.agent.send(karen.says("one"));'
        ' t.check(await t.agent.send(karen.says("two"))).contains("two")'
    ),
}


@pytest.mark.vectors("scenario.jsonl", "runner", departures=TRIALS, beside=("error",))
def test_runner(vector: Vector, project: Project) -> None:
    given, expected = vector["input"], vector["expected"]
    for name, value in known(given.get("options", {}), "retries").items():
        project.configure(f"[eval]\n{name} = {value}\n")
    if "adapter raises" in given["steps"][0]:
        project.agent.answer = lambda _: 400
    if missing := [step for step in given["steps"] if step not in STEPS]:
        unknown(f"steps {missing}")
    passed = project.test(tests=body(*(STEPS[step] for step in given["steps"]))) == 0
    [(score, status)] = project.rows("SELECT score, status FROM executions")
    assert (passed, score) == (expected["passed"], expected["score"])
    assert status == expected.get("status", status)
    found = [[kind, outcome == "passed"] for kind, _, outcome, _ in project.checks()]
    assert found == expected["assertions"]
    said = [turn for turn in expected["turns"] if turn[0] == "persona"]
    assert project.agent.said[-len(said) :] == [text for _, text in said]
    assert len(project.agent.requests) == expected["sends"]
    conversations = {request["conversation_id"] for request in project.agent.requests}
    assert len(conversations) == expected.get("adapter_resets", 1)


@pytest.mark.vectors(
    "scenario.jsonl",
    "runner.context",
    departures=TRIALS,
    beside=("context_keys", "result_keys"),
)
def test_scores(vector: Vector, project: Project) -> None:
    steps = [re.fullmatch(r"score\('\w+', ([\d.]+)\)", step) for step in vector["input"]["steps"]]
    scores = [(float(step[1]),) for step in steps if step]
    if len(scores) < len(steps):
        unknown(f"steps {vector['input']['steps']}")
    project.test(tests=body(*(f"t.{step[0]}" for step in steps if step)))
    recorded = project.rows("SELECT score FROM assertions WHERE kind = 'score'") == scores
    assert recorded == vector["expected"]["score_recorded_in_result"]


@pytest.mark.vectors("scenario.jsonl", "score")
def test_score(vector: Vector, project: Project) -> None:
    passed = vector["input"]["assertions_passed"]
    lines = [f't.check(reply).custom("{at}", lambda _: {one})' for at, one in enumerate(passed)]
    project.test(tests=body('reply = await t.agent.send("hi")', *lines))
    assert project.rows("SELECT score FROM executions") == [(vector["expected"]["score"],)]


CHECKED_AT_ONCE: Final = "".join(
    body(f't.check(await t.agent.send("{name}")).contains("{name}")', name=name) for name in "AB"
)
# What is sent at the same time comes in any order: each message waits for the one before it.
LONG_AND_SHORT: Final = (
    "import asyncio\nbegan, ended = asyncio.Event(), asyncio.Event()\n"
    + body('await t.agent.send("start A")', "began.set()", "await ended.wait()",
           'assert (await t.agent.send("end A")).text', name="A")
    + body("await began.wait()", 'await t.agent.send("start B")',
           'assert (await t.agent.send("end B")).text', name="B")
    + body('await t.agent.send("start C")', 'assert (await t.agent.send("end C")).text',
           "ended.set()", name="C")
)  # fmt: skip


@pytest.mark.vectors("scenario.jsonl", "runner.parallel", departures=TRIALS)
def test_parallel(vector: Vector, project: Project) -> None:
    given, expected = vector["input"], vector["expected"]
    if given["parallelism"] != 2:
        unknown(f"parallelism {given['parallelism']}")
    if "durations_ms" in given:
        lasting = given["durations_ms"]
        if [*lasting] != ["A", "B", "C"] or lasting["A"] < lasting["B"] + lasting["C"]:
            unknown(f"durations {lasting}")
        project.test("-j", "2", tests="\n" + LONG_AND_SHORT)
        order = [text.split() for text in project.agent.said]
        assert {"order": order, "scheduling": "a pool"} == expected
        return
    if [text.partition(" uses ")[0] for text in given["scenarios"]] != ["A", "B"]:
        unknown(f"scenarios {given['scenarios']}")
    project.test("-j", "2", tests="\n" + CHECKED_AT_ONCE)
    rows = project.rows("SELECT test, status, score, error_code FROM executions ORDER BY test")
    found = [[name[-1].upper(), status == "passed", *rest] for name, status, *rest in rows]
    assert found == expected["results"]


FILES: Final = {
    "tests/test_one.py": ["Refund flow"],
    "tests/sub/two_test.py": ["two-a", "two-b"],
    "tests/test_arr.py": ["x1", "x2"],
    "tests/three_spec.py": ["three"],
    "tests/test_default.py": ["dflt", "named"],
}


def write_files(project: Project) -> None:
    for file, names in FILES.items():
        functions = "".join(
            f'\n@scenario("{name}")\nasync def test_{at}(t: Trial) -> None:\n'
            f'    t.check(await t.agent.send("{name}")).contains("echo")\n'
            for at, name in enumerate(names)
        )
        project.write(file, f"from kindlm import Trial, scenario\n{functions}")
    project.write("tests/four.yaml", "name: four\nturns: [{says: four, expect: {contains: echo}}]")


DESCRIBED: Final = {
    "one.test.ts", "sub/two.test.js (2 named)", "arr.test.ts (default array)", "three.spec.ts",
    "four.yaml", "bad.test.ts (syntax error)", "named-plus-default.test.ts",
}  # fmt: skip


@pytest.mark.vectors(
    "scenario.jsonl",
    "discovery.files",
    where=lambda case: "files" in case["input"],
    departures=FOUND,
)
def test_discovery(vector: Vector, project: Project) -> None:
    expected = vector["expected"]
    if set(vector["input"]["files"]) != DESCRIBED:
        unknown(f"files {vector['input']['files']}")
    write_files(project)
    project.write("tests/test_bad.py", "from kindlm import scenario\ndef test_(:\n")
    assert project.test() == 1
    assert sorted(project.agent.said) == expected["scenarios"]
    [(unread,)] = project.rows("SELECT count(*) FROM suites WHERE error_code IS NOT NULL")
    assert unread == expected["load_warnings"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "discovery.files",
    where=lambda case: case["input"]["dir"] == "does not exist",
    ignores=("dir",),
)
def test_no_such_folder(vector: Vector, project: Project) -> None:
    assert not (project.root / "tests").exists()
    assert project.test() == 1
    assert project.agent.said == vector["expected"]["scenarios"]


@pytest.mark.vectors("scenario.jsonl", "discovery.filter", departures=FOUND)
def test_filter(vector: Vector, project: Project) -> None:
    write_files(project)
    if not ("parent" in vector["input"]["filter"] or vector["input"]["filter"] in TITLES):
        unknown(f"filter {vector['input']['filter']}")
    wanted, expected = vector["input"]["filter"], vector["expected"]["scenarios"]
    code = project.test("-t", project.root.parent.name if "parent" in wanted else wanted)
    assert sorted(project.agent.said) == expected
    assert code == (0 if expected else 1)
