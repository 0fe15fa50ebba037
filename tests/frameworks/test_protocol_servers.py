"""Protocols as real servers speak them: those of Pydantic AI, and the SDK of A2A."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from framework_shop import lookup_order
from frameworks import need
from options import options_of

from kindlm.agents import make_agent
from kindlm.errors import Ok
from kindlm.ports import AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role

uvicorn = need("uvicorn")
need("starlette")

CALL = ("lookup_order", {"order": "A1"}, {"order": "A1", "state": "shipped"})


@contextmanager
def served(*routes: Any) -> Iterator[str]:
    """Serve routes on a loopback address, and return it."""
    from starlette.applications import Starlette

    config = uvicorn.Config(Starlette(routes=list(routes)), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def say(url: str, adapter: str, protocol: str, *texts: str) -> list[Any]:
    """Talk to a server; return what each answer says."""

    async def run() -> list[Any]:
        target = AgentTarget("shop", adapter, url, {}, options_of(adapter, {"protocol": protocol}))
        made = make_agent(target, environ={}, root=Path())
        assert isinstance(made, Ok), made
        messages: list[Message] = []
        replies = []
        async with made.value as agent:
            for text in texts:
                messages.append(Message(Role.USER, text))
                result = await agent.send(AgentRequest("c-1", tuple(messages), 20.0))
                assert isinstance(result, Ok), result.error.message
                replies.append(result.value)
                messages.append(Message(Role.ASSISTANT, result.value.text))
        return replies

    return asyncio.run(run())


def calls(reply: Any) -> list[Any]:
    return [(use.call.name, use.call.arguments, use.response) for use in reply.tool_uses]


@pytest.mark.parametrize(
    ("protocol", "module", "name"),
    [
        ("ag-ui", "pydantic_ai.ui.ag_ui", "AGUIAdapter"),
        ("ai-sdk", "pydantic_ai.ui.vercel_ai", "VercelAIAdapter"),
    ],
)
def test_an_agent_of_pydantic_ai_is_spoken_to(server, protocol, module, name):
    adapter = getattr(need(module), name)
    from pydantic_ai import Agent
    from starlette.routing import Route

    agent = Agent("openai-chat:gpt-5-mini", tools=[lookup_order])

    async def answer(request: Any) -> Any:
        return await adapter.dispatch_request(request, agent=agent)

    with served(Route("/", answer, methods=["POST"])) as url:
        first, second = say(url, "http", protocol, "Where is A1?", "And A2?")

    assert (first.text, calls(first)) == ("A1 is shipped.", [CALL])
    # It was told the whole conversation.
    assert second.text == "A2 too: shipped."


@pytest.mark.parametrize("protocol", ["a2a", "a2a-0.3"])
@pytest.mark.parametrize("adapter", ["http", "streaming"])
def test_an_agent_with_the_sdk_of_a2a_is_spoken_to(protocol, adapter):
    with served(*_tasks()) as url:
        asks, answers = say(url, adapter, protocol, "Where is it?", "A1")

    assert (asks.text, calls(asks), asks.reports_tools) == ("Which order?", [], None)
    # The second message went on with the task of the first.
    assert (answers.text, calls(answers)) == ("A1 is shipped.", [CALL])


def _tasks() -> list[Any]:
    """Return the routes of an agent that asks for the order, and then looks it up."""
    need("a2a")
    from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, Part, TaskState
    from google.protobuf.json_format import ParseDict

    def part(kind: str, **data: Any) -> Any:
        return ParseDict({"data": {"id": "c1", **data}, "metadata": {"adk_type": kind}}, Part())

    class Shop(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            order, task = context.get_user_input(), context.current_task
            is_new = task is None
            if is_new:
                task = new_task_from_user_message(context.message)
                await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, task.id, task.context_id)
            if is_new:
                asked = updater.new_agent_message([new_text_part("Which order?")])
                await updater.requires_input(asked)
                return
            state = lookup_order(order)
            for said in (
                part("function_call", name="lookup_order", args={"order": order}),
                part("function_response", name="lookup_order", response=state),
            ):
                message = updater.new_agent_message([said])
                await updater.update_status(TaskState.TASK_STATE_WORKING, message)
            await updater.add_artifact(
                [new_text_part(order), new_text_part(f" is {state['state']}.")]
            )
            await updater.complete()

        async def cancel(self, context: Any, event_queue: Any) -> None:
            raise NotImplementedError

    card = AgentCard(name="shop", version="1", capabilities=AgentCapabilities(streaming=True))
    handler = DefaultRequestHandler(
        agent_executor=Shop(), task_store=InMemoryTaskStore(), agent_card=card
    )
    return create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)
