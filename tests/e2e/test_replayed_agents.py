"""Agents behind the gateway are replayed whole: their code runs, and no provider is called."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from checked_server import LoopbackServer
from workspace import Workspace

SHOP = """
import json, os, sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PROMPT = "You are the support of a shop."
ORDER = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": ORDER}}
    for name in ("lookup_order", "list_parcels")
]


def ask(said, tries=2):
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
    }
    stream = {"stream": True} if "--stream" in sys.argv else {}
    body = json.dumps({"model": "gpt-4o", "messages": said, "tools": TOOLS, **stream}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    try:
        with urlopen(Request(url, body, headers)) as got:
            answer = joined(got) if stream else json.load(got)["choices"][0]["message"]
    except HTTPError as error:
        if error.code != 500 or tries == 1:
            raise
        return ask(said, tries - 1)
    kept = ("role", "content", "tool_calls")
    return {key: answer[key] for key in kept if answer.get(key) is not None}


def joined(lines):
    text, calls = "", {}
    events = [line[6:].strip() for line in lines if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    for chunk in map(json.loads, events):
        delta = chunk["choices"][0]["delta"]
        text += delta.get("content") or ""
        for part in delta.get("tool_calls") or ():
            call = calls.setdefault(part["index"], part)
            if call is not part:
                call["function"]["arguments"] += part["function"]["arguments"]
    for call in calls.values():
        del call["index"]
    called = {"tool_calls": list(calls.values())} if calls else {}
    return {"role": "assistant", "content": text, **called}


def act(call):
    with open("ran.txt", "a") as ran:
        ran.write(call["function"]["name"] + "\\n")
    content = json.dumps({"status": "delivered"})
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


said = [{"role": "system", "content": PROMPT}]


def answer(message):
    said.append({"role": "user", "content": message})
    while True:
        said.append(ask(said))
        if not said[-1].get("tool_calls"):
            return said[-1]["content"]
        said.extend([act(call) for call in said[-1]["tool_calls"]])


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps({"text": answer(json.loads(line)["message"])}), flush=True)
"""
SCRIPT = {
    "rules": [
        {
            "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
            "reply": {
                "toolCalls": [
                    {"name": "lookup_order", "arguments": {"order_id": "A1"}},
                    {"name": "list_parcels", "arguments": {"order_id": "A1"}},
                ]
            },
        },
        {"reply": {"text": "Order A1 was delivered."}},
    ]
}


@pytest.fixture
def shop(workspace: Workspace) -> Path:
    """The file of an agent, in a project that asks it as an object and as a program."""
    agent = workspace.root / "shop_agent.py"
    agent.write_text(SHOP, encoding="utf-8")
    return agent


def write_suite(workspace: Workspace, url: str, *options: str) -> None:
    agents = [
        {"id": "object", "adapter": "python", "endpoint": "shop_agent:answer", "gateway": True},
        {
            "id": "program",
            "adapter": "subprocess",
            "command": " ".join([sys.executable, "shop_agent.py", *options]),
            "gateway": True,
        },
    ]
    called = [{"tool": "lookup_order", "argsMatch": {"order_id": "A1"}}, {"tool": "list_parcels"}]
    never = [{"tool": "refund", "shouldNotCall": True}]
    test = {
        "name": "delivered",
        "prompt": "ask",
        "models": ["object"],
        "conversation": [{"user": "And B2?"}],
        "expect": {
            "toolCalls": [*called, *never],
            "output": {"contains": ["delivered"]},
            "cost": {"maxUsd": 0.5},
        },
    }
    failing = {**test, "name": "refunded", "expect": {"toolCalls": [{"tool": "refund"}]}}
    failing["models"] = ["program"]
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "orders"},
        "providers": {"openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{url}/v1"}},
        "agents": agents,
        "prompts": {"ask": {"user": "Where is A1?"}},
        "tests": [test, failing],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")


def report_of(workspace: Workspace, *arguments: str) -> dict[str, Any]:
    done = workspace.run(*arguments, "--reporter", "json", OPENAI_API_KEY="")
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


SAME = ("status", "output", "toolCalls", "latencyMs", "tokens")


def verdicts(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (*(test[key] for key in ("name", "target")), *(str(each[key]) for key in SAME))
        for test in report["tests"]
        for each in test["executions"]
    ]


def test_agents_run_again_without_a_provider_and_come_out_the_same(
    workspace: Workspace, shop: Path
) -> None:
    ran = workspace.root / "ran.txt"
    with LoopbackServer(SCRIPT) as server:
        write_suite(workspace, server.url, "--stream")
        # What failed then is no answer now.
        server.use_faults([{"status": 500, "next": 1}])
        live = json.loads(workspace.run("test", "--reporter", "json").stdout)
        assert len(server.requests) == 9
    assert [status for _, _, status, *_ in verdicts(live)] == ["passed", "failed"]
    ran_then = ran.read_text()
    report = report_of(workspace, "replay")
    assert verdicts(report) == verdicts(live)
    assert report["run"]["mode"] == "replayed"
    # Tools run for real.
    assert sorted(ran.read_text().splitlines()) == sorted(ran_then.splitlines() * 2)
    for each in (each for test in report["tests"] for each in test["executions"]):
        assert each["costUsd"] == 0
        assert each["costThenUsd"] > 0
    calls = workspace.query(
        "SELECT recorded_in, cost_usd, cost_then_usd FROM provider_calls"
        " WHERE purpose = 'agent' AND execution LIKE ?",
        f"{report['run']['id']}-%",
    )
    assert len(calls) == 8
    assert all(recorded.startswith(live["run"]["id"]) for recorded, *_ in calls)
    assert all(now == 0 and paid > 0 for _, now, paid in calls)
    # A replay can be rescored, and replayed, and the answers stay those of the live run.
    shop.rename(shop.with_suffix(".gone"))
    assert verdicts(report_of(workspace, "rescore", report["run"]["id"])) == verdicts(live)
    shop.with_suffix(".gone").rename(shop)
    again = report_of(workspace, "replay", "--from", report["run"]["id"], "-t", "refunded")
    assert verdicts(again) == verdicts(live)[1:]
    assert workspace.query(
        "SELECT count(*) FROM provider_calls WHERE execution LIKE ? AND recorded_in LIKE ?",
        f"{again['run']['id']}-%",
        f"{live['run']['id']}-%",
    ) == [(4,)]


def test_what_differs_is_named_and_times_are_masked_where_that_is_asked_for(
    workspace: Workspace, shop: Path
) -> None:
    timed = SHOP.replace('of a shop."', 'of a shop. It is " + str(datetime.now())')
    timed = f"from datetime import datetime\n{timed}"
    shop.write_text(timed, encoding="utf-8")
    tests = ("-t", "refunded")
    with LoopbackServer(SCRIPT) as server:
        write_suite(workspace, server.url)
        workspace.run("test", *tests)
    masked = ("replay", "--mask-times", *tests)
    said = workspace.run("replay", *tests, OPENAI_API_KEY="").stdout
    assert "kindlm replay --mask-times" in said
    (answered,) = verdicts(report_of(workspace, *masked))
    assert (answered[2], answered[3]) == ("failed", "Order A1 was delivered.")
    shop.write_text(timed.replace("the support of", "a pirate in"), encoding="utf-8")
    done = workspace.run(*masked, OPENAI_API_KEY="")
    assert done.returncode == 1
    assert "only their models answer as recorded: program." in done.stderr
    said = " ".join(done.stdout.split())
    assert "never recorded this request from the agent to its model (call 1, openai/chat" in said
    assert 'messages[0].content: "You are the support of a shop. It is <time>"' in said
    assert '→ "You are a pirate in a shop. It is <time>"' in said


SERVICE = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import Request, urlopen

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}


def posted(url, headers, **body):
    headers = {"content-type": "application/json", **headers}
    return urlopen(Request(url, json.dumps(body).encode(), headers))


def by_anthropic(text):
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    key = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    tools = [{"name": "lookup_order", "description": "", "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": text}]
    while True:
        asked = {"model": "claude-sonnet-4-5", "max_tokens": 99, "messages": messages}
        with posted(url, key, tools=tools, stream=True, **asked) as stream:
            parts = streamed_parts(stream)
        uses = [part for part in parts if part["type"] == "tool_use"]
        if not uses:
            return parts[0]["text"]
        messages.append({"role": "assistant", "content": parts})
        results = [
            {"type": "tool_result", "tool_use_id": use["id"], "content": "{}"} for use in uses
        ]
        messages.append({"role": "user", "content": results})


def streamed_parts(lines):
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert events[-1]["type"] == "message_stop"
    parts, inputs = {}, {}
    for event in events:
        if event["type"] == "content_block_start":
            parts[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta" and "text" in event["delta"]:
            parts[event["index"]]["text"] += event["delta"]["text"]
        elif event["type"] == "content_block_delta":
            place = event["index"]
            inputs[place] = inputs.get(place, "") + event["delta"]["partial_json"]
    for place, written in inputs.items():
        parts[place]["input"] = json.loads(written)
    return list(parts.values())


def by_responses(text):
    url = os.environ["OPENAI_BASE_URL"] + "/responses"
    key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    tool = {"type": "function", "name": "lookup_order", "parameters": SCHEMA, "strict": False}
    asked, previous = [{"role": "user", "content": text}], {}
    while True:
        with posted(url, key, model="gpt-4o", tools=[tool], input=asked, **previous) as got:
            answer = json.load(got)
        previous = {"previous_response_id": answer["id"]}
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        if not calls:
            return answer["output"][0]["content"][0]["text"]
        kind = "function_call_output"
        asked = [{"type": kind, "call_id": call["call_id"], "output": "{}"} for call in calls]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["message"]
        text = by_responses(asked) if "Responses" in asked else by_anthropic(asked)
        body = json.dumps({"text": text}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
print("up", flush=True)
server.serve_forever()
"""


def test_a_served_agent_is_started_and_gets_answers_of_other_formats_again(
    workspace: Workspace,
) -> None:
    (workspace.root / "service.py").write_text(SERVICE, encoding="utf-8")
    command = [sys.executable, "service.py"]
    endpoint = "http://127.0.0.1:{{serve.shop.port}}/"
    config: dict[str, Any] = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "orders"},
        "serve": [{"name": "shop", "command": command, "ready": {"line": "up"}}],
        "agents": [{"id": "served", "adapter": "http", "endpoint": endpoint, "gateway": True}],
        "prompts": {"ask": {"user": "Where is A1, says {{format}}?"}},
        "tests": [
            {
                "name": name,
                "prompt": "ask",
                "vars": {"format": name},
                "expect": {
                    "toolCalls": [{"tool": "lookup_order", "argsMatch": {"order_id": "A1"}}],
                    "output": {"contains": ["delivered"]},
                },
            }
            for name in ("Responses", "Anthropic")
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    with LoopbackServer(SCRIPT) as server:
        addresses = {
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "sk-ant-example",
        }
        live = json.loads(workspace.run("test", "--reporter", "json", **addresses).stdout)
        assert len(server.requests) == 4
    assert [status for _, _, status, *_ in verdicts(live)] == ["passed", "passed"]
    assert verdicts(report_of(workspace, "replay")) == verdicts(live)


def test_the_gate_on_costs_counts_the_attempts_before_a_resumed_one(
    workspace: Workspace, shop: Path
) -> None:
    def spent(report: dict[str, Any]) -> float:
        (gate,) = [gate for gate in report["gates"]["results"] if gate["name"] == "costMaxUsd"]
        actual: float = gate["actual"]
        return actual

    config = workspace.root / "kindlm.yaml"
    with LoopbackServer(SCRIPT) as server:
        write_suite(workspace, server.url)
        suite = json.loads(config.read_text(encoding="utf-8")) | {"gates": {"costMaxUsd": 1}}
        config.write_text(json.dumps(suite), encoding="utf-8")
        # The first call of a model is over the limit.
        assert workspace.run("test", "-t", "delivered", "--max-cost", "0.000001").returncode == 1
        done = workspace.run("test", "--resume", "--max-cost", "1", "--reporter", "json")
    live = json.loads(done.stdout)
    paid = workspace.query("SELECT attempt, sum(cost_usd) FROM counted_calls GROUP BY attempt")
    assert len(paid) == 2
    assert spent(live) == pytest.approx(sum(usd for _, usd in paid))
    replayed = report_of(workspace, "replay")
    assert spent(replayed) == pytest.approx(spent(live))
    again = report_of(workspace, "replay", "--from", replayed["run"]["id"])
    assert spent(again) == pytest.approx(spent(live))


BILLED = """
import json, os, sys
from http.client import IncompleteRead
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import Request, urlopen


def ask(text):
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
    }
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    try:
        with urlopen(Request(url, json.dumps(body).encode(), headers)) as got:
            return json.load(got)["choices"][0]["message"]["content"]
    except (IncompleteRead, OSError):
        return ask(text)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["message"]
        said = {"text": ask(asked)}
        fails = "Flaky" in asked and not Path("failed").exists()
        if fails:
            Path("failed").touch()
        body = json.dumps({"error": "busy"} if fails else said).encode()
        self.send_response(503 if fails else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
print("up", flush=True)
server.serve_forever()
"""


class Model(BaseHTTPRequestHandler):
    """Charges a dollar an answer, and cuts off the first one to what is to be cut."""

    asked: set[str]

    def do_POST(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        cuts = "Cut" in body and body not in self.asked
        self.asked.add(body)
        message = {"role": "assistant", "content": "delivered"}
        usage = {"prompt_tokens": 0, "completion_tokens": 1_000_000}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        content = json.dumps({"model": "gpt-4o", "choices": choices, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cuts else content)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("what", ["Cut", "Flaky"])
def test_what_failed_behind_the_gateway_was_paid_for_in_a_replay_too(
    workspace: Workspace, what: str
) -> None:
    """One call of a model is cut off, at an unknown cost; or a try of the agent fails."""
    (workspace.root / "service.py").write_text(BILLED, encoding="utf-8")
    agent: dict[str, Any] = {
        "id": "served",
        "adapter": "http",
        "endpoint": "http://127.0.0.1:{{serve.shop.port}}/",
        "gateway": True,
    }
    command = [sys.executable, "service.py"]
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "orders"},
        "serve": [{"name": "shop", "command": command, "ready": {"line": "up"}}],
        "agents": [agent],
        "prices": {"gpt-4o": {"input": 0, "output": 1}},
        "prompts": {"ask": {"user": what}},
        "tests": [{"name": "asks", "prompt": "ask", "expect": {"cost": {"maxUsd": 1}}}],
        "gates": {"costMaxUsd": 9},
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    handler = type("Handler", (Model,), {"asked": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        workspace.env["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
        live = json.loads(workspace.run("test", "--reporter", "json").stdout)
        server.shutdown()
        thread.join()
    first = report_of(workspace, "replay")
    second = report_of(workspace, "replay", "--from", first["run"]["id"])
    # Without the gateway, the agent itself is not asked.
    agent["gateway"] = False
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    third = report_of(workspace, "replay")
    for report in (live, first, second, third):
        (gate,) = [gate for gate in report["gates"]["results"] if gate["name"] == "costMaxUsd"]
        assert (gate["actual"], gate["passed"]) == ((None, False) if what == "Cut" else (2, True))
        (test,) = report["tests"]
        assert test["status"] == ("errored" if what == "Cut" else "passed")
