"""Models with the tools of an MCP server: called, recorded, replayed without it, and compared."""

from __future__ import annotations

import json

import pytest
from checked_server import LoopbackServer

TOKEN = "tok-5d1f0a77c3e9"
# A server that speaks just enough of the protocol, without the package: it starts at once.
SERVER = """
import json, os, sys

def tool(name, **more):
    order = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    return {"name": name, "inputSchema": {**order, "required": ["order_id"]}, **more}

tools = [tool("lookup_order", description=DESCRIPTION), tool("issue_refund")]
calls = []

def answer(method, params):
    if method == "initialize":
        told = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {"result": told | {"serverInfo": {"name": "shop", "version": "0"}}}
    if method == "tools/list":
        return {"result": {"tools": tools}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    if params["name"] == "issue_refund":
        os._exit(3)
    calls.append(params["arguments"]["order_id"])
    token = os.environ["SHOP_TOKEN"] if calls[-1] == "B2" else ""
    found = {"status": "delivered", "calls": str(len(calls)), "token": token}
    content = [{"type": "text", "text": json.dumps(found)}]
    return {"result": {"content": content, "structuredContent": found}}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        found = answer(request["method"], request.get("params", {}))
        said = {"jsonrpc": "2.0", "id": request["id"], **found}
        print(json.dumps(said), flush=True)
"""
SHOP = {
    "id": "shop",
    "adapter": "mcp",
    "command": "python server.py",
    "env": {"SHOP_TOKEN": "{{env.SHOP_TOKEN}}"},
}
REFUND = {"name": "issue_refund", "defaultResponse": {"ok": True}}
MODEL = {
    "rules": [
        {
            "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
            "reply": {
                "toolCalls": [
                    {"name": "lookup_order", "arguments": {"order_id": "A1"}},
                    {"name": "lookup_order", "arguments": {"order_id": "A1"}},
                    {"name": "issue_refund", "arguments": {"order_id": "A1"}},
                ]
            },
        },
        {"when": {}, "reply": {"text": "Order A1 was delivered."}},
    ]
}
RULES = """
SELECT t.tool, t.rule, json_extract(json_extract(t.response, '$'), '$.calls')
  FROM tool_call_log t JOIN executions e ON e.id = t.execution
 WHERE e.run = (SELECT id FROM runs ORDER BY started_at DESC LIMIT 1)
 ORDER BY t.execution, t.position
"""


@pytest.fixture
def server():
    with LoopbackServer(MODEL) as server:
        yield server


@pytest.fixture
def shop(workspace, server):
    """A suite whose model gets the tools of a server, one of them simulated; tested twice."""
    workspace.env["SHOP_TOKEN"] = TOKEN
    tools = [{"mcp": {"server": "shop"}}, REFUND]
    test = workspace.test(tools=tools, repeat=2)
    workspace.suite(server.url, agents=[SHOP], tests=[test])
    write(workspace, "Finds an order.")
    return workspace


def write(workspace, description):
    program = SERVER.replace("DESCRIPTION", repr(description))
    (workspace.root / "server.py").write_text(program, encoding="utf-8")


def test_tools_of_a_server_are_called_replayed_and_compared(shop, server):
    assert shop.report()["run"]["status"] == "passed"
    # Each conversation has a server of its own; what is simulated never reaches it.
    once = [
        ("lookup_order", "mcp", "1"),
        ("lookup_order", "mcp", "2"),
        ("issue_refund", "defaultResponse", None),
    ]
    assert shop.query(RULES) == once * 2
    offered = {
        tool["function"]["name"]: tool["function"] for tool in server.requests[0].body["tools"]
    }
    assert offered["lookup_order"]["description"] == "Finds an order."
    assert offered["issue_refund"]["parameters"]["required"] == ["order_id"]

    asked = len(server.requests)
    (shop.root / "server.py").unlink()
    replayed = shop.run("replay")
    assert (replayed.returncode, len(server.requests)) == (0, asked), replayed.stdout
    assert shop.query(RULES) == once * 2

    write(shop, "Looks an order up.")
    assert shop.report()["run"]["status"] == "passed"
    compared = json.loads(shop.run("diff", "--format", "json").stdout)
    (config,) = compared["configs"]
    assert config["changes"] == [
        {
            "path": "mcp[shop].tools[lookup_order].description",
            "before": "Finds an order.",
            "after": "Looks an order up.",
        }
    ]


@pytest.mark.parametrize(
    ("mcp", "said"),
    [
        ({"only": ["lookup_ordr"]}, "has no tool 'lookup_ordr', in the test \"delivered\""),
        ({"simulate": True, "only": ["lookup_order"]}, None),
    ],
)
def test_some_tools_of_a_server_and_simulated_ones(shop, server, mcp, said):
    test = shop.test(tools=[{"mcp": {"server": "shop", **mcp}}])
    shop.suite(server.url, agents=[SHOP], tests=[test])
    done = shop.run("test")
    if said is None:
        assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == [
            "lookup_order"
        ]
        assert shop.query(RULES)[0] == ("lookup_order", "no response", None)
    else:
        assert done.returncode == 1
        assert said in " ".join(done.stdout.split())
        assert server.requests == ()


def test_a_tool_that_only_another_server_has_is_missing(shop, server):
    source = (shop.root / "server.py").read_text(encoding="utf-8")
    (shop.root / "stock.py").write_text(source.replace("lookup_order", "count"), encoding="utf-8")
    tools = [{"server": "shop", "only": ["lookup_order"]}]
    tools += [{"server": "stock", "only": ["lookup_order"]}]
    stock = {**SHOP, "id": "stock", "command": "python stock.py"}
    test = shop.test(tools=[{"mcp": each} for each in tools])
    shop.suite(server.url, agents=[SHOP, stock], tests=[test])
    said = " ".join(shop.run("test").stdout.split())
    assert "The MCP server 'stock' has no tool 'lookup_order'" in said


def test_a_server_that_does_not_start_runs_no_test_of_the_suite(shop, server):
    (shop.root / "server.py").write_text("raise SystemExit('no database')", encoding="utf-8")
    done = shop.run("test")
    assert (done.returncode, server.requests) == (1, ())
    assert "ended with exit code 1 without an answer: no database" in " ".join(done.stdout.split())


def test_a_server_that_dies_at_a_call_makes_the_execution_errored(shop, server):
    test = shop.test(tools=[{"mcp": {"server": "shop"}}])
    shop.suite(server.url, agents=[SHOP], tests=[test])
    report = shop.report()
    (execution,) = shop.query("SELECT status, error_code FROM executions")
    assert execution == ("errored", "PROVIDER_API_ERROR")
    assert report["run"]["status"] == "failed"


def test_a_server_is_tested_by_calls_and_listed(workspace):
    workspace.env["SHOP_TOKEN"] = TOKEN
    write(workspace, "Finds an order.")
    calls = {
        "name": "finds",
        "vars": {"order": 'A"1'},
        "call": {"tool": "lookup_order", "arguments": {"order_id": "{{order}}"}},
        "conversation": [
            {
                "call": {"tool": "lookup_order", "arguments": {"order_id": "B2"}},
                "expect": {"output": {"contains": ['"calls": "2"']}},
            }
        ],
        "expect": {
            "toolCalls": [{"tool": "lookup_order", "argsMatch": {"order_id": 'A"1'}}],
        },
    }
    workspace.suite("http://127.0.0.1:1", agents=[SHOP], models=[], tests=[calls])
    assert workspace.report()["run"]["status"] == "passed"
    assert TOKEN.encode() not in workspace.database.read_bytes()
    (servers,) = workspace.query("SELECT servers FROM suites")[0]
    (listed,) = json.loads(servers)
    assert listed["server"] == "shop"
    body = "SELECT body FROM contents WHERE ref = ?"
    ((tools,),) = workspace.query(body, listed["tools"]["$ref"])
    assert [tool["name"] for tool in json.loads(tools)] == ["lookup_order", "issue_refund"]
