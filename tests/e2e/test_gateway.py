"""Agents that call their models through kindlm: what a run sees of them, and records."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from checked_server import LoopbackServer
from order_shop import order_shop
from workspace import KEY

from kindlm.reports.pages.execution_page import execution_page
from kindlm.reports.pages.html_document import Links, PageRequest, render_part

SHOP = order_shop(KEY)
ASKS = """
import json, os, sys, urllib.request

URL = os.environ.get("LLM_URL", os.environ["OPENAI_BASE_URL"])
TOOL = {"name": "lookup_order", "description": "Finds an order.", "parameters": {
    "type": "object", "properties": {"order_id": {"type": "string"}}}}

def answer(text, headers={}):
    history = [{"role": "user", "content": text}]
    while True:
        body = {"model": "gpt-4o", "messages": history,
                "tools": [{"type": "function", "function": TOOL}]}
        sent = urllib.request.Request(
            URL + "/chat/completions", json.dumps(body).encode(),
            {"content-type": "application/json", **headers,
             "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
        with urllib.request.urlopen(sent) as got:
            message = json.load(got)["choices"][0]["message"]
        history.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            history.append({"role": "tool", "tool_call_id": call["id"], "content": '{"paid": 7}'})
"""
LINES = f"""{ASKS}
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({{"text": answer(request["message"])}}), flush=True)
"""
SILENT = """
import json, os, sys
for line in sys.stdin:
    keys = sorted(name for name, value in os.environ.items() if value == "%s")
    print(json.dumps({"text": f"Real keys: {keys}"}), flush=True)
"""

SERVES = f"""{ASKS}
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = "x-kindlm-execution"
        passed = {{name: self.headers[name]}} if "passes-on" in sys.argv else {{}}
        body = json.dumps({{"text": answer(asked["message"], passed)}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
print("up", flush=True)
server.serve_forever()
"""

FORWARDS = """
import os, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        said = self.rfile.read(int(self.headers["content-length"]))
        headers = {"content-type": "application/json",
                   "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, said, headers)) as got:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(got.read())

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
print("up", flush=True)
server.serve_forever()
"""


@pytest.fixture
def provider():
    with LoopbackServer(SHOP) as provider:
        yield provider


@pytest.fixture
def run(workspace, provider):
    """Test an agent with `gateway: true`; return the process, the report and the workspace."""

    def run(source: str, agent: dict, *options: str, orders: int = 1, **more):
        (workspace.root / "agent.py").write_text(source, "utf-8")
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "agents": [{"id": "shop", "gateway": True, **agent}],
            "prompts": {"ask": {"user": "Where is order {{id}}?"}},
            "tests": [
                {
                    "name": f"order {number}",
                    "prompt": "ask",
                    "vars": {"id": f"A-{number}"},
                    "expect": {
                        "toolCalls": [
                            {"tool": "lookup_order", "argsMatch": {"order_id": f"A-{number}"}},
                            {"tool": "refund", "shouldNotCall": True},
                        ]
                    },
                }
                for number in range(orders)
            ],
            "defaults": {"concurrency": 32},
            **more,
        }
        (workspace.root / "kindlm.yaml").write_text(json.dumps(config), "utf-8")
        workspace.env["OPENAI_BASE_URL"] = f"{provider.url}/v1"
        done = workspace.run("test", "--reporter", "json", *options)
        return done, json.loads(done.stdout)

    return run


PROGRAM = {"adapter": "subprocess", "command": "python agent.py"}


OWN_NAME = {"LLM_URL": "{{gateway}}/openai/v1", "OPENAI_BASE_URL": "http://127.0.0.1:1"}


def served(*words: str) -> dict:
    command = ["python", "agent.py", *words]
    service = {"name": "shop", "command": command, "ready": {"line": "up"}, "env": OWN_NAME}
    return {"serve": [service]}


AT_PORT = {"adapter": "http", "endpoint": "http://127.0.0.1:{{serve.shop.port}}/"}


def test_tools_and_costs_of_an_opaque_program_are_seen(run, workspace, provider, key):
    done, report = run(LINES, PROGRAM)
    assert done.returncode == 0, done.stdout
    assert [request.status for request in provider.requests] == [200, 200]
    (execution,) = report["tests"][0]["executions"]
    shown = workspace.run("show", report["run"]["id"], "1").stdout
    assert shown.count("model      call") == 2
    assert 'lookup_order {"order_id": "A-0"}' in shown
    assert '{"paid": 7}' in shown
    # Once in the answer, and not in the calls beside.
    assert execution["costUsd"] == pytest.approx(report["summary"]["costUsd"])
    with closing(sqlite3.connect(workspace.database)) as db:
        db.row_factory = sqlite3.Row
        page = execution_page(db, PageRequest(execution["id"]))
        assert "2 model calls by the agent" in render_part(page, Links())
    assert key.encode() not in (workspace.root / ".kindlm/kindlm.db").read_bytes()


def test_an_agent_that_calls_no_model_is_undecided_and_has_no_key(run, workspace):
    workspace.env |= {"SHOP_KEY": KEY, "LOCAL_KEY": KEY}
    local = {"type": "ollama", "apiKeyEnv": "LOCAL_KEY"}
    providers = {"openai": {"apiKeyEnv": "SHOP_KEY"}, "local": local}
    done, report = run(SILENT % KEY, PROGRAM, providers=providers)
    assert report["tests"][0]["executions"][0]["output"] == "Real keys: []"
    assert done.returncode == 1
    assert "No model answered the agent shop through the gateway" in done.stdout
    assert report["summary"]["executions"]["errored"] == 1


def test_a_served_program_that_is_the_provider_does_not_call_itself(run, workspace, provider):
    (workspace.root / "proxy.py").write_text(FORWARDS, "utf-8")
    proxy = {"name": "proxy", "command": ["python", "proxy.py"], "ready": {"line": "up"}}
    base_url = "http://127.0.0.1:{{serve.proxy.port}}/v1"
    openai = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": base_url}
    agent = {**PROGRAM, "timeoutMs": 20_000}
    done, _ = run(LINES, agent, serve=[proxy], providers={"openai": openai})
    assert done.returncode == 0, done.stdout
    assert len(provider.requests) == 2


def test_a_served_program_of_a_suite_without_the_gateway_does_not_call_it(run, workspace, provider):
    program = "import os, time; open('seen', 'w').write(os.environ['OPENAI_BASE_URL'])"
    words = ["python", "-c", f"{program}; print('up', flush=True); time.sleep(99)"]
    plain = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "plain"},
        "serve": [{"name": "other", "command": words, "ready": {"line": "up"}}],
        "providers": {"fake": {"type": "scripted", "replies": [{"text": "Hi"}]}},
        "models": [{"id": "fake", "provider": "fake", "model": "script"}],
        "prompts": {"ask": {"user": "Hi"}},
        "tests": [{"name": "a", "prompt": "ask", "expect": {"output": {"contains": ["Hi"]}}}],
    }
    (workspace.root / "plain.yaml").write_text(json.dumps(plain), "utf-8")
    done, _ = run(LINES, PROGRAM, "kindlm.yaml", "plain.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (workspace.root / "seen").read_text() == f"{provider.url}/v1"


def test_executions_at_once_have_their_own_calls(run, provider):
    done, report = run(SERVES, AT_PORT, orders=12, **served("passes-on"))
    assert done.returncode == 0, done.stdout
    assert len(provider.requests) == 24
    assert report["summary"]["executions"]["passed"] == 12


def test_an_agent_that_passes_no_header_on_answers_one_at_a_time(run):
    done, _ = run(SERVES, AT_PORT, orders=4, **served())
    assert done.returncode == 0, done.stdout
    assert done.stderr.count("answers one message at a time") == 1
    assert "x-kindlm-execution" in done.stderr


NODE = """
import readline from "node:readline"

const tools = [{type: "function", function: {name: "lookup_order", description: "Finds an order.",
  parameters: {type: "object", properties: {order_id: {type: "string"}}}}}]
async function answer(text) {
  const messages = [{role: "user", content: text}]
  for (;;) {
    const got = await fetch(process.env.OPENAI_BASE_URL + "/chat/completions", {method: "POST",
      headers: {"content-type": "application/json",
        authorization: "Bearer " + process.env.OPENAI_API_KEY},
      body: JSON.stringify({model: "gpt-4o", messages, tools})})
    const message = (await got.json()).choices[0].message
    messages.push(message)
    if (!message.tool_calls?.length) return message.content
    for (const call of message.tool_calls)
      messages.push({role: "tool", tool_call_id: call.id, content: '{"paid": 7}'})
  }
}
for await (const line of readline.createInterface({input: process.stdin}))
  console.log(JSON.stringify({text: await answer(JSON.parse(line).message)}))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_a_program_of_node_is_seen_as_well(run, workspace):
    (workspace.root / "agent.mjs").write_text(NODE, "utf-8")
    done, _ = run("", {"adapter": "subprocess", "command": "node agent.mjs"})
    assert done.returncode == 0, done.stdout


FAILS = f"""{ASKS}
for line in sys.stdin:
    answer(json.loads(line)["message"])
    sys.exit("no answer today")
"""


def test_calls_of_an_agent_that_fails_are_paid_for_all_the_same(run):
    done, report = run(FAILS, PROGRAM)
    assert done.returncode == 1
    assert report["summary"]["executions"]["errored"] == 1
    assert report["summary"]["costUsd"] > 0
    assert report["summary"]["tokens"]["input"] > 0


FAILS_FIRST = SERVES.replace(
    "self.send_response(200)",
    """tries.append(1)
        self.send_response(500 if len(tries) == 1 else 200)
        self.send_header("retry-after", "0")""",
).replace("class Handler", "tries = []\n\nclass Handler")


def test_each_call_of_a_try_that_failed_counts_once(run, provider, workspace):
    done, report = run(FAILS_FIRST, AT_PORT, "--max-cost", "1", **served())
    assert done.returncode == 0, done.stdout
    (execution,) = report["tests"][0]["executions"]
    assert [call["name"] for call in execution["toolCalls"]] == ["lookup_order"] * 2
    assert len(provider.requests) == 4
    assert report["summary"]["costUsd"] == pytest.approx(2 * execution["costUsd"])
    with closing(sqlite3.connect(workspace.database)) as db:
        paid = "SELECT sum(input_tokens) FROM provider_calls WHERE purpose = 'agent'"
        assert report["summary"]["tokens"]["input"] == db.execute(paid).fetchone()[0]


OWN_KEY = ASKS.replace('os.environ["OPENAI_API_KEY"]', '"sk-own-key-of-the-agent"')


@pytest.mark.parametrize("is_served", [False, True])
def test_a_key_in_the_code_of_an_agent_is_named_in_its_error(run, is_served):
    agent = (SERVES if is_served else LINES).replace(ASKS, OWN_KEY)
    if is_served:
        _, report = run(agent, AT_PORT, **served())
    else:
        _, report = run(agent, PROGRAM)
    error = report["tests"][0]["executions"][0]["error"]
    assert "reached the gateway without its key" in error["message"]
    assert "take its key from OPENAI_API_KEY" in error["message"]


def test_a_key_that_kindlm_lacks_is_named_in_the_error_of_the_agent(run, workspace):
    del workspace.env["OPENAI_API_KEY"]
    _, report = run(LINES, PROGRAM)
    error = report["tests"][0]["executions"][0]["error"]
    assert (
        "Its call to openai/chat/completions failed: The provider answered 401"
        in (error["message"])
    )
    assert "set OPENAI_API_KEY" in error["message"]


OF_THE_RUN = """
import os
from urllib.parse import urlsplit
os.environ["LLM_URL"] = f"http://{urlsplit(os.environ['KINDLM_GATEWAY']).netloc}/openai/v1"
"""


@pytest.mark.parametrize("source", [LINES, OF_THE_RUN + LINES])
def test_a_limit_of_costs_stops_the_calls_of_an_agent(run, provider, source):
    program = {**PROGRAM, "env": OWN_NAME}
    done, report = run(source, program, "--max-cost", "0.00001")
    assert done.returncode != 0
    assert len(provider.requests) == 1
    assert ((report["summary"]["costUsd"] or 0) > 0.00001) == (source == LINES)


FORGIVES = LINES.replace(
    "for line in sys.stdin:",
    """
ask = answer

def answer(text):
    try:
        return ask(text)
    except OSError:
        return "Sorry, I cannot look that up."

for line in sys.stdin:""",
)
HERE = """
import httpx

async def answer(message):
    history = [{"role": "user", "content": message}]
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    async with httpx.AsyncClient(headers=headers) as client:
        while True:
            body = {"model": "gpt-4o", "messages": history,
                    "tools": [{"type": "function", "function": TOOL}]}
            url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
            got = (await client.post(url, json=body)).raise_for_status()
            said = got.json()["choices"][0]["message"]
            history.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for call in said["tool_calls"]:
                history.append({"role": "tool", "tool_call_id": call["id"], "content": "{}"})
"""


@pytest.mark.parametrize(
    ("source", "agent", "more"),
    [
        (LINES, PROGRAM, {}),
        (FORGIVES, PROGRAM, {}),
        (OF_THE_RUN + LINES, PROGRAM, {}),
        (SERVES, AT_PORT, served()),
        (ASKS + HERE, {"adapter": "python", "endpoint": "agent:answer"}, {}),
    ],
    ids=["fails", "answers all the same", "at the address of the run", "served", "in this process"],
)
def test_an_agent_whose_calls_a_limit_refused_is_asked_again_on_resume(
    run, workspace, source, agent, more
):
    agent = agent if agent is not PROGRAM else {**agent, "env": OWN_NAME}
    options = ("--max-cost", "0.00001", "-j", "1")
    if OF_THE_RUN in source:  # what it cost is unknown, which no limit allows
        more = {"prices": {"shop": {"input": 0, "output": 0}}}
    done, stopped = run(source, agent, *options, orders=2, **more)
    assert done.returncode != 0
    assert stopped["run"]["status"] == "aborted"
    ends = {each["status"] for test in stopped["tests"] for each in test["executions"]}
    assert ends == {"skipped"}  # which counts those that a stopped run never finished
    report = json.loads(
        workspace.run("test", "--resume", "--max-cost", "1", "--reporter", "json").stdout
    )
    assert report["run"]["id"] == stopped["run"]["id"]
    # Tool calls that cannot be assigned are unknown, but each execution has run.
    assert report["run"]["status"] == ("failed" if OF_THE_RUN in source else "passed")
    ends = {each["status"] for test in report["tests"] for each in test["executions"]}
    assert "skipped" not in ends


def test_an_agent_whose_calls_the_limit_of_its_suite_refused_is_skipped(run):
    done, report = run(LINES, PROGRAM, gates={"costMaxUsd": 0.00001})
    assert done.returncode != 0
    (execution,) = report["tests"][0]["executions"]
    assert execution["status"] == "skipped"
    assert "costMaxUsd" in execution["warnings"][0]
