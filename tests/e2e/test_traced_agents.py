"""Agents that export OpenTelemetry spans with the real SDK, from the file to the verdict."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from inside import run_inside
from pages import text_of

from kindlm.reports.pages.execution_page import execution_page
from kindlm.reports.pages.html_document import Links, PageRequest, render_part

AGENT = Path(__file__).parents[1] / "telemetry" / "traced_agent.py"
USES = {
    "toolCalls": [
        {"tool": "lookup", "responseContains": "sent"},
        {"tool": "refund", "shouldNotCall": True},
    ]
}


def served(*ways: str, **more: object) -> dict[str, object]:
    return {
        "serve": [
            {
                "name": "shop",
                "command": ["python", str(AGENT)],
                "ready": "http://127.0.0.1:{{serve.shop.port}}/",
            }
        ],
        "agents": [
            {
                "id": way,
                "adapter": "http",
                "endpoint": f"http://127.0.0.1:{{{{serve.shop.port}}}}/{way}",
                "telemetry": "otlp",
                **more,
            }
            for way in ways
        ],
    }


@pytest.fixture
def write(workspace):
    """Write one test on agents."""

    def write(config, **test):
        written = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "traced"},
            "prompts": {"ask": {"user": "Send A1."}},
            "tests": [{"name": "sends", "prompt": "ask", "expect": USES, **test}],
            **config,
        }
        (workspace.root / "kindlm.yaml").write_text(json.dumps(written), "utf-8")

    return write


@pytest.fixture
def run(workspace, write):
    """Run one test on agents; return the process and the statuses by agent."""

    def run(config, **test):
        write(config, **test)
        done = workspace.run("test", "--reporter", "json")
        report = json.loads(done.stdout)
        return done, {test["target"]: test["status"] for test in report["tests"]}, report

    return run


def test_of_12_executions_at_once_each_has_its_own_spans(workspace, run, key):
    config = served("good") | {"defaults": {"concurrency": 12}}
    done, statuses, _ = run(config, repeat=12)
    assert (done.returncode, statuses) == (0, {"good": "passed"})
    answers = workspace.query(
        "SELECT t.body, a.body FROM provider_calls p JOIN contents t ON t.ref = p.text_ref"
        " JOIN tool_calls c ON c.execution = p.execution"
        " JOIN contents a ON a.ref = c.arguments_ref"
    )
    assert len({text for text, _ in answers}) == len(answers) == 12
    for text, arguments in answers:
        assert text == f"Sent, says {json.loads(arguments)['conversation']}."
    assert key.encode() not in workspace.database.read_bytes()
    # What the agent did unasked is of no execution.
    assert "1 span arrived in traces that kindlm did not start" in done.stderr

    shown = workspace.run("show", "latest", "1").stdout
    assert "span       answer" in shown
    assert "span         tool lookup" in shown
    execution = json.loads(done.stdout)["run"]["id"] + "-1"
    with closing(sqlite3.connect(workspace.database)) as db:
        db.row_factory = sqlite3.Row
        page = execution_page(db, PageRequest(execution))
        assert page is not None
        assert "2 trace spans" in text_of(render_part(page, Links()))

    again = workspace.run("rescore", "--reporter", "json")
    assert (again.returncode, json.loads(again.stdout)["tests"][0]["status"]) == (0, "passed")


WAYS_OUT = {
    "slow": "OTEL_BSP_SCHEDULE_DELAY=100",
    "dead": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "silent": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "torn": "Pass the header traceparent on",
    "bare": "open a span around the answer",
}


def test_agents_whose_spans_may_be_missing_are_undecided_with_the_way_out(run):
    config = served(*WAYS_OUT, telemetryWaitMs=300) | {"defaults": {"concurrency": 1}}
    done, statuses, report = run(config)
    assert done.returncode == 1
    assert statuses == dict.fromkeys(WAYS_OUT, "errored")
    for test in report["tests"]:
        told = json.dumps(test)
        assert WAYS_OUT[test["target"]] in told, test["target"]
        assert "raise telemetryWaitMs" in told or test["target"] == "torn"


def test_where_protobuf_cannot_be_read_the_extra_is_named(workspace, write, monkeypatch):
    package = "opentelemetry.proto.collector.trace.v1"
    for module in (package, f"{package}.trace_service_pb2"):
        monkeypatch.setitem(sys.modules, module, None)
    agent = {"id": "lines", "adapter": "subprocess", "command": f"{sys.executable} {AGENT} --lines"}
    write({"agents": [agent | {"telemetry": "otlp", "telemetryWaitMs": 300}]})
    done = run_inside(["test"], cwd=workspace.root, env=workspace.env)
    assert done.returncode == 1
    undecided = " ".join(done.stdout.split())
    assert "No span of the agent arrived" in undecided
    assert "kindlm[otel]" in undecided


def test_personal_data_in_spans_is_not_recorded(workspace, run):
    agent = {"id": "lines", "adapter": "subprocess", "command": f"python {AGENT} --lines"}
    config = {"agents": [agent | {"telemetry": "otlp", "env": {"SPAN": "mail to ann@example.com"}}]}
    done, _, _ = run(config | {"record": {"redactPii": True}})
    assert done.returncode == 0, done.stdout
    shown = workspace.run("show", "latest", "1").stdout
    assert "span       mail to an***" in shown
    assert b"ann@example.com" not in workspace.database.read_bytes()


def test_programs_export_to_an_address_of_their_conversation(run):
    command = f"python {AGENT}"
    agents = [
        {"id": "once", "adapter": "subprocess", "command": f"{command} --once", "oneShot": True},
        {"id": "code", "adapter": "python", "endpoint": "traced_agent:called"}
        | {"path": str(AGENT.parent)},
    ]
    config = {"agents": [agent | {"telemetry": "otlp"} for agent in agents]}
    done, statuses, _ = run(config)
    assert (set(statuses.values()), done.returncode) == ({"passed"}, 0), done.stdout


def test_scenarios_see_the_spans_of_each_message(workspace):
    (workspace.root / "kindlm.toml").write_text(
        f'[agent]\ntype = "subprocess"\ncommand = "python {AGENT} --lines"\n'
        'telemetry = "otlp"\ntelemetry_wait_ms = 60_000\n',
        "utf-8",
    )
    tests = workspace.root / "tests"
    tests.mkdir()
    (tests / "test_orders.py").write_text(SCENARIO, "utf-8")
    done = workspace.run("test", "tests")
    assert done.returncode == 0, done.stdout


SCENARIO = """
from kindlm import Trial, scenario

@scenario("orders")
async def test_orders(t: Trial) -> None:
    for message in ("Send A1.", "Send A2."):
        reply = await t.agent.send(message)
        t.check(reply).tool_called("lookup").tool_not_called("refund")
        t.require(len(reply.tool_calls) == 1, "one call for each message")
"""


def test_an_agent_in_the_process_of_the_test_needs_no_exporter(workspace):
    tests = workspace.root / "tests"
    tests.mkdir()
    (tests / "shop.py").write_text(HERE, "utf-8")
    (tests / "test_orders.py").write_text(TESTS_HERE, "utf-8")
    done = workspace.run_apart("test", "tests")
    assert done.returncode == 0, done.stdout
    assert "3 tests passed" in done.stdout
    assert "kindlm did not start" not in done.stderr
    # The oldest attribute is dropped: that the span is of a tool.
    done = workspace.run_apart("test", "tests", OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="2")
    assert done.returncode == 1
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=10000" in " ".join(done.stdout.split())


TESTS_HERE = """
import shop
from kindlm import Trial, scenario

async def talk(t):
    for text in ("Send A1.", "Send A2."):
        reply = await t.agent.send(text)
        t.check(reply).tool_called("lookup", {"text": text}).tool_not_called("refund")

@scenario("async", agent=shop.later, telemetry="otlp")
async def test_async(t: Trial) -> None:
    await talk(t)

@scenario("blocking", agent=shop.blocking, telemetry="otlp")
async def test_blocking(t: Trial) -> None:
    await talk(t)

@scenario("not observed", agent=shop.blocking)
async def test_not_observed(t: Trial) -> None:
    t.check(await t.agent.send("Send A3.")).contains("Sent")
"""

HERE = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("shop")

def blocking(text):
    with tracer.start_as_current_span("execute_tool lookup") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "lookup")
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps({"text": text}))
    return "Sent."

async def later(text):
    return blocking(text)
"""


def test_cases_of_evalview_have_traced_agents(workspace):
    folder = workspace.root / ".evalview"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "endpoint: http://127.0.0.1:{{serve.shop.port}}/good\n"
        "telemetry: otlp\n"
        f"serve: [{{name: shop, command: [python, '{AGENT}'], ready: {{line: listening}}}}]\n",
        "utf-8",
    )
    cases = workspace.root / "tests" / "test-cases"
    cases.mkdir(parents=True)
    (cases / "orders.yaml").write_text(
        "name: orders\ninput: {query: Send A1.}\n"
        "expected: {tools: [lookup], forbidden_tools: [refund]}\n"
        "thresholds: {min_score: 0}\n",
        "utf-8",
    )
    done = workspace.run("test", "tests/test-cases")
    assert done.returncode == 0, done.stdout
