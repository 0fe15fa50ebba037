"""An assistant whose functions a suite simulates: tested, recorded, and given again."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from assistants_stand_in import AssistantsApp, ScriptedRun

from kindlm.testing.http1 import listening

TOKEN = "tok-assistant-51d2e84b06"
CALL = {"id": "call_1", "name": "lookup_order", "arguments": '{"order_id": "A1"}'}
CODE = {
    "id": "step_1",
    "created_at": 1,
    "step_details": {
        "tool_calls": [
            {
                "id": "c1",
                "type": "code_interpreter",
                "code_interpreter": {"input": "1", "outputs": []},
            }
        ]
    },
}


@pytest.fixture
def served():
    """Serve an API from another thread; return its URL."""
    app = AssistantsApp(
        ScriptedRun(
            f"It was delivered. {TOKEN}",
            before=(),
            asks=([CALL],),
            steps=[CODE],
            fields={"tools": [{"type": "code_interpreter"}]},
        )
    )
    ports, loops = [], []
    ready = threading.Event()

    async def serve():
        stop = asyncio.Event()
        async with listening(app.handle, "127.0.0.1", 0) as port:
            ports.append(port)
            loops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    yield f"http://127.0.0.1:{ports[0]}/v1", app
    loop, stop = loops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()


def test_it_is_tested_recorded_once_and_given_again(workspace, served):
    url, app = served
    agent = {
        "id": "helper",
        "adapter": "openai-assistants",
        "endpoint": url,
        "headers": {"Authorization": "Bearer {{env.ASSISTANT_TOKEN}}"},
    }
    workspace.suite(url, providers={}, models=[], agents=[agent])
    workspace.env |= {"ASSISTANT_TOKEN": TOKEN, "OPENAI_ASSISTANT_ID": "asst_1"}
    first = workspace.report()["tests"][0]["executions"][0]
    assert first["status"] == "passed"
    assert [call["name"] for call in first["toolCalls"]] == ["code_interpreter", "lookup_order"]
    assert {request.headers["authorization"] for request in app.requests} == {f"Bearer {TOKEN}"}
    asked = len(app.requests)
    replayed = json.loads(workspace.run("replay", "--reporter", "json").stdout)
    again = replayed["tests"][0]["executions"][0]
    assert len(app.requests) == asked
    assert again["toolCalls"] == first["toolCalls"]
    workspace.query("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in workspace.root.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
    ((output,),) = workspace.query(
        "SELECT json_extract(data, '$.tool_calls') FROM event_log"
        " WHERE type = 'agent.replied' LIMIT 1"
    )
    assert [call.get("simulated", False) for call in json.loads(output)] == [False, True]
