"""The examples with LangGraph and MCP, run with the real packages where they are there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from frameworks import is_there

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = [("A1", "shipped"), ("B2", "delivered")]


@pytest.fixture
def copied(workspace):
    """Return a function that puts an example into the workspace, where no key is."""
    del workspace.env["OPENAI_API_KEY"]

    def copied(name):
        ignored = shutil.ignore_patterns("__pycache__", ".kindlm", ".venv")
        shutil.copytree(EXAMPLES / name, workspace.root / name, ignore=ignored)
        # The programs that are served run with the Python of this test.
        own = str(Path(sys.executable).parent)
        workspace.env["PATH"] = os.pathsep.join([own, workspace.env["PATH"]])
        return workspace

    return copied


@pytest.mark.parametrize("name", ["langgraph-agent", "mcp-server"])
def test_the_suites_are_valid(copied, name):
    done = copied(name).run("validate", name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    not is_there("langgraph"), reason="LangGraph is not installed: pip install langgraph"
)
def test_a_graph_in_both_forms_and_from_both_formats(copied):
    workspace = copied("langgraph-agent")
    report = workspace.report("langgraph-agent")
    assert report["run"]["status"] == "passed"
    assert _passed(workspace) == [("langgraph", 1), ("streamed", 2), ("whole", 2)]
    assert _calls(workspace) == ORDERS * 3
    tokens = "SELECT DISTINCT input_tokens, output_tokens FROM provider_calls ORDER BY 1"
    assert workspace.query(tokens) == [(40, 10), (80, 20)]


def test_an_mcp_server_called_and_given_to_a_model(copied):
    workspace = copied("mcp-server")
    # Each execution starts the server; its third test asks it like the first.
    tests = ("-t", "finds-an-order", "-t", "a-model-looks-up-and-cancels")
    assert workspace.report("mcp-server", *tests)["run"]["status"] == "passed"
    assert _passed(workspace) == [("model", 1), ("shop", 1)]
    rules = "SELECT tool, rule FROM tool_calls WHERE rule <> 'agent' ORDER BY position"
    assert workspace.query(rules) == [("look_up_order", "mcp"), ("cancel_order", "defaultResponse")]


def _passed(workspace):
    return workspace.query(
        "SELECT target, sum(status = 'passed') FROM executions GROUP BY target ORDER BY target"
    )


def _calls(workspace):
    """Return the order and its status of each call, execution by execution."""
    return workspace.query(
        "SELECT json_extract(arguments, '$.order_id'),"
        "       json_extract(json_extract(response, '$'), '$.status')"
        "  FROM tool_call_log ORDER BY execution, position"
    )
