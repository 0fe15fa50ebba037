"""MCP servers under test: real ones of the package `mcp`, and programs and peers that are none."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from options import options_of
from processes import assert_ended, started_pids, time_passes_after

from kindlm.agents import mcp_connection
from kindlm.errors import ErrorCode
from kindlm.suite import AgentTarget
from kindlm.transcript import ToolCall

SHOP = """
    import os
    from pathlib import Path
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ImageContent, TextContent
    from pydantic import BaseModel

    Path("pids").write_text(str(os.getpid()))
    server = MCPServer("shop", version="1.2")
    looked_up = []

    class Order(BaseModel):
        order_id: str
        nth: int

    @server.tool()
    def look_up(order_id: str) -> Order:
        "Find an order."
        if order_id == "X":
            raise ToolError("There is no order X")
        looked_up.append(order_id)
        return Order(order_id=order_id, nth=len(looked_up))

    @server.tool(structured_output=False)
    def label(size: int) -> list:
        "Print a label."
        picture = ImageContent(type="image", data="AAAA" * size, mime_type="image/png")
        return [TextContent(type="text", text=os.environ["PRINTER"]), picture]

    server.run("stdio")
"""

# A server that speaks just enough of the protocol, without the package: it starts at once.
BARE = """
    import json, os, sys
    from pathlib import Path
    Path("pids").write_text(str(os.getpid()))
    def answer(request):
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {},
                               "serverInfo": {"name": "bare", "version": "0"}}}
        return TOOLS(method, params)
    O = {"type": "object"}
    def page(cursor):
        tools = [{"name": f"{cursor}{n}", "inputSchema": O} for n in range(300)]
        return {"result": {"tools": tools, "nextCursor": cursor + "+"}}
    def refused(text, code=-32602):
        return {"error": {"code": code, "message": text}}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            said = {"jsonrpc": "2.0", "id": request["id"], **answer(request)}
            print(json.dumps(said), flush=True)
"""

CALL = '{"tool": "look_up", "arguments": {"order_id": "A1"}}'


@pytest.fixture
def server(tmp_path, make):
    """Return a function that makes the agent of a server, from the text of its program."""

    def server(program, **options):
        (tmp_path / "server.py").write_text(textwrap.dedent(program), encoding="utf-8")
        given = options_of("mcp", {"command": "python server.py", **options})
        target = AgentTarget("shop", "mcp", "", options=given)
        return make(target, tmp_path, **os.environ)

    return server


def bare(tools: str) -> str:
    return BARE.replace("TOOLS", f"(lambda method, params: {tools})")


def test_a_program_is_called_until_its_conversation_ends(server, ask, success, tmp_path):
    async def talk():
        async with server(SHOP, env={"PRINTER": "Printer 7"}) as agent:
            said = [CALL, '{"tool": "look_up", "arguments": {"order_id": "X"}}', CALL]
            said += ['{"tool": "gone"}', '{"tool": "label", "arguments": {"size": 2}}']
            replies = [success(await agent.send(ask(text))) for text in said]
            return *replies, success(await agent.list_tools(20))

    first, failed, second, unknown, label, listed = asyncio.run(talk())
    assert json.loads(first.text) == {"order_id": "A1", "nth": 1}
    (use,) = first.tool_uses
    assert use.call == ToolCall("call_1", "look_up", {"order_id": "A1"})
    assert use.response == {"order_id": "A1", "nth": 1}
    assert json.loads(first.raw)["isError"] is False
    assert json.loads(second.text)["nth"] == 2
    said = "Error executing tool look_up: There is no order X"
    assert (failed.text, failed.tool_uses[0].response) == (said, {"error": said})
    assert failed.reports_tools
    assert unknown.tool_uses[0].response == {"error": "Unknown tool: gone"}
    assert label.text == label.tool_uses[0].response == "Printer 7\n[image image/png]"
    assert_ended(started_pids(tmp_path))
    assert (listed.server, listed.identity, len(listed.hash)) == ("shop", "shop 1.2", 12)
    look_up, label = listed.tools
    assert (look_up["name"], look_up["description"]) == ("look_up", "Find an order.")
    assert look_up["inputSchema"]["required"] == ["order_id"]
    assert look_up["outputSchema"]["required"] == ["order_id", "nth"]
    assert "outputSchema" not in label


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("page(params.get('cursor', ''))", "lists more than 1,000 tools"),
        (
            '{"result": {"tools": [{"name": "a", "inputSchema": O}] * 2}}',
            "or two of the same name",
        ),
        ('refused("No tools today")', "gave no result: No tools today"),
        ('{"result": {"tools": [{"name": 7}]}}', "gave no result: "),
    ],
)
def test_a_list_that_cannot_be_used_is_an_error(server, failure, tools, said):
    async def listed():
        async with server(bare(tools)) as agent:
            return failure(await agent.list_tools(20))

    assert said in asyncio.run(listed()).message


@pytest.mark.parametrize("code", [-32602, -32000, -32700])
def test_a_call_that_the_server_refuses_is_answered(server, ask, success, code):
    async def talk():
        async with server(bare(f'refused("order_id is missing", {code})')) as agent:
            return success(await agent.send(ask(CALL)))

    reply = asyncio.run(talk())
    assert (reply.text, reply.tool_uses[0].response) == (
        "order_id is missing",
        {"error": "order_id is missing"},
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('print("Server ready"); input()', "not an MCP message: Server ready"),
        (bare("os._exit(3)"), "ended with exit code 3 without an answer"),
        (bare("os.kill(os.getpid(), 9)"), "ended by SIGKILL without an answer"),
        (bare('print("debug: X1", flush=True)'), "not an MCP message: debug: X1"),
        (bare('{"result": {"content": 7}}'), "gave no result: "),
        (
            bare('{"result": {"content": [{"type": "text", "text": "x" * 10_000_001}]}}'),
            "printed more than 10 MB",
        ),
        ("import os, time; os.close(1); time.sleep(1000)", "closed its output"),
    ],
)
def test_a_program_that_does_not_answer_is_an_error(
    server, ask, failure, program, said, impatient_to_leave
):
    async def talk():
        async with server(program) as agent:
            return failure(await agent.send(ask(CALL)))

    error = asyncio.run(talk())
    assert (error.code, error.details["retryable"]) == (ErrorCode.PROVIDER_API_ERROR, False)
    assert said in error.message


@pytest.mark.parametrize("hangs", ["import time; Path('up').touch(); time.sleep(1000)", None])
def test_a_program_that_hangs_is_ended(server, ask, failure, tmp_path, hangs, impatient_to_leave):
    begin = "import os; from pathlib import Path; Path('pids').write_text(str(os.getpid()))\n"
    program = begin + hangs if hangs else bare("Path('up').touch() or input()")

    async def talk():
        async with time_passes_after((tmp_path / "up").exists), server(program) as agent:
            return failure(await agent.send(ask(CALL)))

    error = asyncio.run(talk())
    assert (error.code, error.details["retryable"]) == (ErrorCode.PROVIDER_TIMEOUT, False)
    assert_ended(started_pids(tmp_path))


def test_a_conversation_that_is_cut_off_leaves_no_program(server, ask, tmp_path, impatient):
    async def talk():
        async with server(bare("Path('up').touch() or input()")) as agent:
            sending = asyncio.create_task(agent.send(ask(CALL)))
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    asyncio.run(talk())
    assert_ended(started_pids(tmp_path))


@pytest.mark.parametrize(
    "text", ["hello", '{"tool": "a", "arguments": []}', '{"tool": "a", "argments": {"id": 1}}']
)
def test_a_message_that_is_no_call_is_an_error(server, ask, failure, text):
    error = failure(asyncio.run(server("").send(ask(text))))
    assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
    assert "not a tool call" in error.message


def test_without_the_package_the_extra_is_named(server, ask, failure, monkeypatch):
    monkeypatch.setattr(mcp_connection, "find_spec", lambda name: None)
    error = failure(asyncio.run(server("").send(ask(CALL))))
    assert "needs the package mcp" in error.message
    assert "pip install 'kindlm[mcp]'" in error.hint


@asynccontextmanager
async def served(shop):
    """Serve an `MCPServer` by streamable HTTP, on a free port."""
    import uvicorn

    http = uvicorn.Server(
        uvicorn.Config(shop.streamable_http_app(), port=0, log_config=None, lifespan="on")
    )
    serving = asyncio.create_task(http.serve())
    while not http.started:
        await asyncio.sleep(0.01)
    port = http.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        http.should_exit = http.force_exit = True  # handlers may hang
        await serving


def test_an_address_on_this_machine_is_called_with_its_headers_and_past_proxies(
    make, ask, success, monkeypatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    # It takes a second to load: not while tests are collected.
    from mcp.server.mcpserver import Context, MCPServer

    def who(greeting, ctx):
        """Say who calls."""
        return f"{greeting}, {ctx.headers['authorization']} {ctx.headers.get('traceparent')}"

    who.__annotations__ = {"greeting": str, "ctx": Context, "return": str}
    shop = MCPServer("shop")
    shop.tool(structured_output=False)(who)

    async def talk():
        async with served(shop) as url:
            target = AgentTarget(
                "shop", "mcp", url, {"Authorization": "Bearer T"}, options_of("mcp", {})
            )
            request = ask('{"tool": "who", "arguments": {"greeting": "Hello"}}')
            request = replace(request, headers={"traceparent": "00-7"})
            async with make(target) as agent:
                first = success(await agent.send(request))
                listed = success(await agent.list_tools(20))
            return first, listed

    reply, listed = asyncio.run(talk())
    assert reply.text == "Hello, Bearer T 00-7"
    assert [tool["name"] for tool in listed.tools] == ["who"]


def shop_answering(call, end=None):
    """Return a server whose answers to tool calls, and to the client's answers, `call` makes.

    With `end`, which answers the client's wish to end it, the server has a session.
    """
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    methods = []

    async def answer(request):
        message = await request.json()
        methods.append(message.get("method"))
        if message.get("method") in ("tools/call", None):
            answered = call(message)
            return await answered if asyncio.iscoroutine(answered) else answered
        if message["method"] != "initialize":
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "shop", "version": "1"},
        }
        session = {} if end is None else {"mcp-session-id": "s-1"}
        said = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return JSONResponse(said, headers=session)

    routes = [Route("/mcp", answer, methods=["POST"])]
    routes += [] if end is None else [Route("/mcp", end, methods=["DELETE"])]
    app = Starlette(routes=routes)
    return SimpleNamespace(streamable_http_app=lambda: app, methods=methods)


@pytest.fixture
def call_at_address(make, ask):
    """Return a function that calls a tool of `shop_answering`, and returns the result."""

    def call_at_address(answer, hangs=None):
        async def talk():
            async with served(shop_answering(answer)) as url:
                target = AgentTarget("shop", "mcp", url, options=options_of("mcp", {}))
                async with make(target) as agent, time_passes_after(hangs):
                    return await agent.send(ask('{"tool": "refund"}', timeout_s=600))

        return asyncio.run(talk())

    return call_at_address


def refusal(message, code, number=None):
    error = {"code": code, "message": "sold out"}
    return {"jsonrpc": "2.0", "id": number or message["id"], "error": error}


@pytest.mark.parametrize("form", ["json", "stream", "status"])
@pytest.mark.parametrize("code", [-32602, -32000, -32700])
def test_a_call_that_an_address_refuses_is_answered(call_at_address, success, form, code):
    from starlette.responses import JSONResponse, Response

    def call(message):
        refused = refusal(message, code)
        if form == "stream":
            text = f"data: {json.dumps(refused)}\n\n"
            return Response(text, media_type="text/event-stream")
        return JSONResponse(refused, 400 if form == "status" else 200)

    reply = success(call_at_address(call))
    assert (reply.text, reply.tool_uses[0].response) == ("sold out", {"error": "sold out"})


@pytest.mark.parametrize("begins", [True, False])
def test_a_call_that_an_address_may_have_run_is_not_repeated(call_at_address, failure, begins):
    from starlette.responses import StreamingResponse

    is_called = asyncio.Event()

    async def pieces():
        yield ": the tool runs\n\n"
        is_called.set()
        await asyncio.Event().wait()

    async def call(message):
        if not begins:
            is_called.set()
            await asyncio.Event().wait()
        return StreamingResponse(pieces(), media_type="text/event-stream")

    error = failure(call_at_address(call, is_called.is_set))
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert not error.details["retryable"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "code", "said"),
    [
        (": no more\n\n", "text/event-stream", 200, "API_ERROR", "gave no result: SSE stream"),
        ("data: {\n\n", "text/event-stream", 200, "API_ERROR", "gave no result: Failed to parse"),
        (None, "application/json", 200, "NETWORK_ERROR", "No answer from agent 'shop'"),
        ("broken", "text/plain", 502, "API_ERROR", "returned 502: broken"),
        (refusal({}, -32000, "null"), "application/json", 400, "API_ERROR", "returned 400: sold"),
    ],
)
def test_a_call_without_an_answer_from_an_address_is_an_error(
    call_at_address, failure, body, kind, status, code, said
):
    from starlette.responses import Response, StreamingResponse

    async def cut():
        yield "{"
        raise ConnectionError

    def call(message):
        if body is None:
            return StreamingResponse(cut(), media_type=kind)
        text = body if isinstance(body, str) else json.dumps(body).replace('"null"', "null")
        return Response(text, status, media_type=kind)

    error = failure(call_at_address(call))
    assert (error.code, error.details["retryable"]) == (ErrorCode[f"PROVIDER_{code}"], False)
    assert said in error.message


def test_an_answer_from_an_address_is_read_up_to_a_limit(call_at_address, failure):
    from starlette.responses import StreamingResponse

    async def endless():
        while True:
            yield " " * 1_000_000
            await asyncio.sleep(0)

    def call(message):
        return StreamingResponse(endless(), media_type="application/json")

    assert "more than 10 MB" in failure(call_at_address(call)).message


def test_a_call_that_an_address_did_not_run_is_repeated_in_its_session(make, ask, success, failure):
    from starlette.responses import JSONResponse, Response

    busy, shop = [429, 503], None

    def call(message):
        if busy:
            return Response("busy", busy.pop())
        result = {"content": [{"type": "text", "text": "refunded"}]}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def talk():
        async with served(shop) as url:
            target = AgentTarget("shop", "mcp", url, options=options_of("mcp", {}))
            async with make(target) as agent:
                for _ in range(2):
                    error = failure(await agent.send(ask('{"tool": "refund"}')))
                    assert error.details["retryable"]
                return success(await agent.send(ask('{"tool": "refund"}')))

    shop = shop_answering(call)
    assert asyncio.run(talk()).text == "refunded"
    assert shop.methods.count("initialize") == 1


def test_an_address_that_does_not_let_its_session_end_is_left(make, ask, failure, monkeypatch):
    monkeypatch.setattr(mcp_connection, "_CLOSE_S", 0.1)
    from starlette.responses import Response

    async def end(request):
        await asyncio.sleep(60)

    async def talk():
        async with served(shop_answering(lambda message: Response("gone", 404), end)) as url:
            target = AgentTarget("shop", "mcp", url, options=options_of("mcp", {}))
            async with asyncio.timeout(20), make(target) as agent:
                return failure(await agent.send(ask('{"tool": "refund"}')))

    assert "returned 404" in asyncio.run(talk()).message


def test_an_answer_to_a_request_of_an_address_needs_no_answer(call_at_address, success):
    from starlette.responses import Response, StreamingResponse

    answered = asyncio.Event()

    def event(**message):
        return f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"

    async def pieces(number):
        yield event(id=99, method="roots/list")
        await answered.wait()
        yield event(id=number, error={"code": -32603, "message": "sold out"})

    def call(message):
        if "method" in message:
            return StreamingResponse(pieces(message["id"]), media_type="text/event-stream")
        answered.set()
        return Response(status_code=202)

    assert "sold out" in success(call_at_address(call)).text


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (lambda http: http("denied", status=401), "PROVIDER_AUTH_ERROR", "returned 401: denied"),
        (lambda http: http("<html>Log in", kind="text/html"), "PROVIDER_API_ERROR", "an HTML page"),
        (lambda http: http('{"hello": 1}'), "PROVIDER_API_ERROR", 'MCP message): {"hello": 1}'),
        (lambda http: http("", status=202), "PROVIDER_API_ERROR", "not an MCP message"),
        (lambda http: http(":\n", kind="text/event-stream"), "PROVIDER_API_ERROR", "gave no"),
        (lambda http: http("x" * 10_000_001), "PROVIDER_API_ERROR", "more than 10 MB"),
        (lambda http: None, "PROVIDER_NETWORK_ERROR", "No answer from agent 'shop'"),
    ],
)  # fmt: skip
def test_an_address_that_is_no_server_is_an_error(
    peer, http, make, ask, failure, answer, code, said
):
    async def talk():
        async with peer(answer(http)) as server:
            target = AgentTarget("shop", "mcp", server.url, options=options_of("mcp", {}))
            async with make(target) as agent:
                return failure(await agent.send(ask(CALL)))

    error = asyncio.run(talk())
    assert error.code is ErrorCode[code]
    assert said in error.message
