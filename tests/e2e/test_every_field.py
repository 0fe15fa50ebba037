"""The example with every field: it passes, leaves no field out, and each of its checks can fail."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from checked_server import LoopbackServer
from dotenv import dotenv_values
from free_ports import free_ports
from workspace import Workspace, as_yaml, new_workspace, until

from kindlm.config.published import schema_with_packages

EXAMPLE = Path(__file__).parents[2] / "examples" / "every-field"
SUITE, SCRIPT = "kindlm.yaml", "models.yaml"
LOADER: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

# A cassette needs a run that came before, and the example passes on its first one. A snapshot is of
# sandboxes that a service has.
NOT_SHOWN = {
    ("ToolConfig", "cassette"),
    ("CassetteConfig", "run"),
    ("CassetteConfig", "match"),
    ("AgentConfig", "snapshot"),
    # The agents of the example call no models, and answer in one format.
    ("AgentConfig", "gateway"),
    ("AgentConfig", "telemetry"),
    ("AgentConfig", "telemetryWaitMs"),
    ("AgentConfig", "protocol"),
    # Places of models that the example does not ask: in docs/how-to/providers.md.
    ("ProviderConfig", "region"),
    ("ProviderConfig", "resource"),
    ("ProviderConfig", "location"),
    ("ProviderConfig", "project"),
    # Written as a number alone.
    ("LatencyMsConfig", "maxMs"),
    ("CostUsdConfig", "maxUsd"),
    # Short forms: in other examples, and in docs/reference/configuration.md.
    ("", "agent"),
    ("", "model"),
    ("TestConfig", "input"),
    ("TestConfig", "prompts"),
    ("MessageConfig", "role"),
    ("MessageConfig", "content"),
    # In examples/mcp-server, which needs a package of its own.
    ("TestConfig", "call"),
    ("TurnConfig", "call"),
    ("CallConfig", "tool"),
    ("CallConfig", "arguments"),
    ("ServerToolsConfig", "mcp"),
    ("McpToolsConfig", "server"),
    ("McpToolsConfig", "only"),
    ("McpToolsConfig", "simulate"),
}


@dataclass(frozen=True)
class Change:
    """One value to put into the suite (by the name of a test) or the script (of a rule)."""

    file: str
    name: str
    path: tuple[str | int, ...]
    value: Any

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        data = loaded(path)
        entries = data["tests" if self.file == SUITE else "rules"]
        self.change(next(entry for entry in entries if entry["name"] == self.name))
        path.write_text(as_yaml(data), "utf-8")

    def change(self, place: Any) -> None:
        for key in self.path[:-1]:
            place = place[key]
        place[self.path[-1]] = self.value


def loaded(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load(path.read_text("utf-8"), LOADER)
    return data


def refund(*path: str | int, to: Any) -> Change:
    return Change(SUITE, "refunds-once", path, to)


def answer(*path: str | int, to: Any) -> Change:
    return Change(SUITE, "answers-json", path, to)


def suite(name: str, *path: str | int, to: Any) -> Change:
    return Change(SUITE, name, path, to)


def repeats(*path: str | int, to: Any) -> Change:
    return suite("repeats-the-question", *path, to=to)


def script(rule: str, **reply: Any) -> Change:
    return Change(SCRIPT, rule, ("reply",), reply)


OUTPUT, CALLS = ("expect", "output"), ("expect", "toolCalls")
PII, KEYWORDS = ("expect", "guardrails", "pii"), ("expect", "guardrails", "keywords")
OF_CUSTOMERS = {"type": "object", "properties": {}, "required": ["customer"]}
LOOKUP = {"name": "lookup_order", "arguments": {"order_id": "A1"}}
NUMBERED = '"action": "inform", "order": {"id": "A1"}, "message": "Sorry, C-123456."}'
REFUNDED = '"action": "refund", "order": {"id": "B2"}, "message": "Sorry for the wait."}'

CHANGED_TESTS = [
    (answer(*OUTPUT, "schemaFile", to="schemas/order.json"), "schema", "SCHEMA_INVALID"),
    (refund(*OUTPUT, "contains", to=["B2"]), "contains", "CONTAINS_FAILED"),
    (
        refund("conversation", 0, "expect", "output", "contains", to=["gladly"]),
        *("contains", "CONTAINS_FAILED"),
    ),
    (
        refund("conversation", 0, "expect", "toolCalls", 0, "count", "max", to=1),
        *("tool_called", "TOOL_CALL_COUNT_WRONG"),
    ),
    (repeats(*OUTPUT, "contains", to=["lost"]), "contains", "CONTAINS_FAILED"),
    (repeats(*OUTPUT, "equals", to="You asked"), "equals", "EQUALS_FAILED"),
    (repeats(*OUTPUT, "startsWith", to="Where"), "starts_with", "STARTS_WITH_FAILED"),
    (repeats(*OUTPUT, "containsAny", to=["C3"]), "contains_any", "CONTAINS_FAILED"),
    (repeats(*OUTPUT, "regex", to=[r"[A-Z]\d{2}"]), "matches", "PATTERN_NOT_MATCHED"),
    (repeats(*OUTPUT, "notRegex", to="B2"), "not_matches", "PATTERN_MATCHED"),
    (repeats(*OUTPUT, "similarTo", "text", to="No"), "similar_to", "NOT_SIMILAR"),
    (
        suite("answers-json-too", *OUTPUT, "schema", to=OF_CUSTOMERS),
        *("schema", "SCHEMA_INVALID"),
    ),
    (
        suite("answers-json-too", "expect", "python", 0, "minScore", to=0.9),
        *("python", "CUSTOM_CHECK_FAILED"),
    ),
    (refund(*OUTPUT, "notContains", to=["A1"]), "not_contains", "NOT_CONTAINS_FAILED"),
    (refund(*OUTPUT, "maxLength", to=10), "max_length", "MAX_LENGTH_EXCEEDED"),
    (answer(*PII, "denyPatterns", to=[r"\bA\d\b"]), "pii", "PII_DETECTED"),
    (answer(*KEYWORDS, "deny", to=["the wait"]), "keywords_deny", "KEYWORD_DENIED"),
    (answer(*KEYWORDS, "allow", to=["welcome"]), "keywords_allow", "KEYWORD_MISSING"),
    (
        refund(*CALLS, 0, "argsMatch", to={"order_id": "B2"}),
        *("tool_called", "TOOL_CALL_ARGS_MISMATCH"),
    ),
    (
        refund(*CALLS, 0, "argsSchema", to="schemas/answer.json"),
        *("tool_called", "TOOL_CALL_ARGS_SCHEMA_INVALID"),
    ),
    (refund(*CALLS, 0, "order", to=3), "tool_called", "TOOL_CALL_ORDER_WRONG"),
    (
        refund(*CALLS, 2, to={"tool": "issue_refund", "before": "lookup_order"}),
        *("tool_called", "TOOL_CALL_ORDER_WRONG"),
    ),
    (refund(*CALLS, 2, "after", to="cancel_order"), "tool_called", "TOOL_CALL_ORDER_WRONG"),
    (refund(*CALLS, 1, "responseContains", to="lost"), "tool_called", "TOOL_RESPONSE_MISMATCH"),
    (refund(*CALLS, 1, "count", to={"min": 2}), "tool_called", "TOOL_CALL_COUNT_WRONG"),
    (refund(*CALLS, 3, "shouldNotCall", to=False), "tool_called", "TOOL_CALL_MISSING"),
    (refund(*CALLS, 3, "tool", to="issue_refund"), "tool_not_called", "TOOL_CALL_UNEXPECTED"),
    (
        suite("runs-as-a-command", *CALLS, 0, "tool", to="refund"),
        *("tool_called", "TOOL_CALL_MISSING"),
    ),
    (
        refund(
            "tools",
            0,
            "parameters",
            to={"type": "object", "properties": {}, "required": ["customer"]},
        ),
        *("tool_strict", "TOOL_CALL_ARGS_SCHEMA_INVALID"),
    ),
    (refund("expect", "trajectory", "mode", to="strict"), "trajectory", "TRAJECTORY_MISMATCH"),
    (
        refund("expect", "judge", 0, "criteria", to="Speaks Latin"),
        *("judge", "JUDGE_BELOW_THRESHOLD"),
    ),
    (
        refund("expect", "judge", 2, to={"criteria": "Deals with the weather"}),
        *("judge", "JUDGE_BELOW_THRESHOLD"),
    ),
    (refund("expect", "latency", "maxMs", to=0.001), "latency", "LATENCY_EXCEEDED"),
    (refund("expect", "cost", "maxUsd", to=0.000001), "cost", "BUDGET_EXCEEDED"),
    (
        suite("agent-knows-the-order", "expect", "cost", "maxUsd", to=0.00001),
        *("cost", "BUDGET_EXCEEDED"),
    ),
]
"""A value of a test that makes one of its checks fail, and how."""

CHANGED_REPLIES = [
    (script("as-json", text="Sorry, no JSON."), "schema", "SCHEMA_PARSE_ERROR"),
    (script("as-json", text=NUMBERED), "pii", "PII_DETECTED"),
    (
        script("look-up-again", toolCalls=[LOOKUP, {"name": "weather", "arguments": {}}]),
        *("tool_strict", "TOOL_CALL_UNMATCHED"),
    ),
    (script("refused", text="A1 was already refunded."), "judge", "JUDGE_BELOW_THRESHOLD"),
]
"""A reply of the model that makes one check fail, and how."""


def copied(workspace: Workspace) -> Workspace:
    ignored = shutil.ignore_patterns("__pycache__", ".kindlm")
    shutil.copytree(EXAMPLE, workspace.root / "example", ignore=ignored)
    del workspace.env["OPENAI_API_KEY"]
    return workspace


@pytest.fixture
def example(workspace):
    return copied(workspace)


@pytest.fixture(scope="module")
def models():
    with LoopbackServer(EXAMPLE / SCRIPT) as server:
        yield server


@pytest.fixture(scope="module")
def shop():
    """Serve the agent of the example; return its port."""
    (port,) = free_ports(1)
    environ = {**os.environ, **dotenv_values(EXAMPLE / ".env"), "SHOP": "ACME", "PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, EXAMPLE / "src" / "shop_agent.py"], env=environ
    ) as agent:
        until(lambda: _answers(port))
        yield port
        agent.kill()


@pytest.fixture
def served(example, models, shop):
    """The example, whose models and agent are there before its tests begin."""
    write_served(example, _suite(), models.port, shop)
    return example


def write_served(example: Workspace, suite: dict[str, Any], models: int, shop: int) -> None:
    del suite["serve"]
    text = as_yaml(suite).replace("{{serve.models.port}}", str(models))
    path = example.root / "example" / SUITE
    path.write_text(text.replace("{{serve.shop.port}}", str(shop)), "utf-8")


@pytest.fixture(scope="module")
def changed_tests(tmp_path_factory, models, shop):
    """The report of one run of all changed tests, each a test of its own."""
    example = copied(new_workspace(tmp_path_factory.mktemp("changed")))
    suite = _suite()
    tests = {test["name"]: test for test in suite["tests"]}
    suite["tests"] = []
    del suite["gates"]  # all of them together cost more than one of these allows
    for number, (change, *_) in enumerate(CHANGED_TESTS):
        test = copy.deepcopy(tests[change.name])
        change.change(test)
        if "models" in test:
            test["models"] = test["models"][:1]
        suite["tests"].append({**test, "name": f"change {number}"})
    write_served(example, suite, models.port, shop)
    models.use_script(EXAMPLE / SCRIPT)
    return example.report("example/kindlm.yaml", "--runs", "1")


def test_it_is_valid_without_a_warning(example):
    done = example.run("validate", "example/kindlm.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problems" in done.stdout


def test_it_passes_before_there_is_a_baseline_and_then(example, models, shop):
    first = example.report("example")
    assert first["run"]["status"] == "passed", _failures(first)
    assert {test["target"] for test in first["tests"] if test["status"] == "passed"} == {
        *(
            "claude",
            "gpt",
            "llama",
            "fixed",
            "shop",
            "envelope",
            "direct",
            "graph",
            "events",
            "program",
        ),
        "command",
    }
    assert _outcomes(first, "drift") == {"skipped"}
    # A canary cannot be given away by a script: it is not known before the run.
    others = {"drift", "canary_output", "canary_arguments"}
    can_fail = {kind for _, kind, _ in CHANGED_TESTS + CHANGED_REPLIES} | others
    assert _kinds(first) == can_fail, "Add to CHANGED_TESTS what makes each check fail"

    assert example.run("baseline", "set").returncode == 0
    write_served(example, _suite(), models.port, shop)
    models.use_script(EXAMPLE / SCRIPT)
    second = example.report("example", "--runs", "1")
    assert second["run"]["status"] == "passed", _failures(second)
    assert _outcomes(second, "drift") == {"passed"}
    gates = {gate["name"]: gate for gate in second["gates"]["results"]}
    assert gates.keys() == _suite()["gates"].keys()
    assert all(gate["passed"] and gate["actual"] is not None for gate in gates.values())


def test_no_field_is_left_out():
    schema = schema_with_packages()[0]
    sections = {"": schema, **schema["$defs"]}
    defined = {(name, field) for name in sections for field in sections[name].get("properties", ())}
    assert ("ServeConfig", "ready") in defined
    left_out = defined - set(_fields(_suite(), schema, "", schema["$defs"]))
    new = f"Use in {EXAMPLE / SUITE}, or add to NOT_SHOWN: {left_out - NOT_SHOWN}"
    assert left_out == NOT_SHOWN, new


@pytest.mark.parametrize("number", range(len(CHANGED_TESTS)))
def test_one_change_of_a_test_makes_one_check_fail(changed_tests, number):
    _, kind, code = CHANGED_TESTS[number]
    tests = [test for test in changed_tests["tests"] if test["name"] == f"change {number}"]
    assert "failed" in {test["status"] for test in tests}
    assert _failures({"tests": tests}) == {(kind, code)}


@pytest.mark.parametrize(("change", "kind", "code"), CHANGED_REPLIES)
def test_one_change_of_a_reply_makes_one_check_fail(served, models, change, kind, code):
    change.apply(served.root / "example")
    models.use_script(served.root / "example" / SCRIPT)
    test = "answers-json" if change.name == "as-json" else "refunds-once"
    report = served.report("example/kindlm.yaml", "-t", test, "--runs", "1")
    assert report["run"]["status"] == "failed"
    assert _failures(report) == {(kind, code)}


def test_drift_from_the_baseline_fails(served, models):
    only = ("example/kindlm.yaml", "-t", "answers-json")
    models.use_script(EXAMPLE / SCRIPT)
    assert served.report(*only)["run"]["status"] == "passed"
    assert served.run("baseline", "set").returncode == 0
    script("as-json", text=REFUNDED).apply(served.root / "example")
    models.use_script(served.root / "example" / SCRIPT)
    report = served.report(*only)
    assert report["run"]["status"] == "failed"
    assert _failures(report) == {("drift", "DRIFT_EXCEEDED")}


def _suite() -> dict[str, Any]:
    return loaded(EXAMPLE / SUITE)


def _fields(
    value: Any, schema: dict[str, Any], name: str, definitions: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the section and the name of each field that a value has, where its schema names it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _fields(value, definitions[name], name, definitions)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _fields(value, branch, name, definitions)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            yield from _fields(item, schema["items"], name, definitions)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                yield name, key
                yield from _fields(item, properties[key], name, definitions)
            elif isinstance(others, dict):
                yield from _fields(item, others, name, definitions)


def _assertions(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for test in report["tests"]:
        for execution in test["executions"]:
            yield from execution["assertions"]


def _kinds(report: dict[str, Any]) -> set[str]:
    return {each["kind"] for each in _assertions(report)}


def _outcomes(report: dict[str, Any], kind: str) -> set[str]:
    return {each["outcome"] for each in _assertions(report) if each["kind"] == kind}


def _failures(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (each["kind"], each["failureCode"])
        for each in _assertions(report)
        if each["outcome"] in ("failed", "inconclusive")
    }


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
