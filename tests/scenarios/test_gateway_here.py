"""Agents in the process of the test that call their models through the gateway."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from checked_server import LoopbackServer
from order_shop import order_shop
from scenario_project import Project

from kindlm.cli.app import run

KEY = "sk-example-5d1c92e07b3f4a68"
SHOP = order_shop(KEY)
AGENTS = """
import threading
from concurrent.futures import ThreadPoolExecutor
from openai import AsyncOpenAI, OpenAI

client = OpenAI()  # made before any run
TOOL = {"type": "function", "function": {"name": "lookup_order", "description": "Finds it.",
    "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}}}}
pool = ThreadPoolExecutor(1)

def asked(said):
    return dict(model="gpt-4o", messages=said, tools=[TOOL])

def results(message):
    yield message.to_dict()
    for call in message.tool_calls:
        yield {"role": "tool", "tool_call_id": call.id, "content": '{"paid": 7}'}

def answer(text):
    said = [{"role": "user", "content": text}]
    while True:
        message = client.chat.completions.create(**asked(said)).choices[0].message
        if not message.tool_calls:
            return message.content
        said += results(message)

async def later(text):
    said = [{"role": "user", "content": text}]
    async with AsyncOpenAI() as waiting:
        while True:
            got = await waiting.chat.completions.create(**asked(said))
            message = got.choices[0].message
            if not message.tool_calls:
                return message.content
            said += results(message)

async def blocking(text):
    return answer(text)

def in_a_thread(text):
    return pool.submit(answer, text).result()
"""
TESTS = """
import pytest
from kindlm import *
import order_agents

NUMBERS = pytest.mark.parametrize("number", range({number}))

@NUMBERS
@scenario("orders", agent=order_agents.{agent}, gateway=True)
async def test_orders(t: Trial, number):
    reply = await t.agent.send(f"Where is order A-{{number}}?")
    t.check(reply).tool_called("lookup_order", {{"order_id": f"A-{{number}}"}})
    t.check(reply).tool_not_called("refund")
"""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    with LoopbackServer(SHOP) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield provider


@pytest.fixture
def outcome(project: Project, provider: LoopbackServer, capsys: pytest.CaptureFixture[str]):
    """Test an agent with some orders; return how they came out, and what was shown."""

    def outcome(agent: str, number: int = 1) -> tuple[set[str], str]:
        (project.root / "kindlm.toml").unlink()
        project.write("tests/order_agents.py", AGENTS)
        project.write("tests/test_it.py", TESTS.format(agent=agent, number=number))
        project.test()
        shown = capsys.readouterr()
        return set(project.statuses().values()), " ".join(f"{shown.out} {shown.err}".split())

    return outcome


@pytest.mark.parametrize("name", ["answer", "later"])
def test_calls_of_an_agent_here_are_seen_and_assigned(outcome, provider, name, monkeypatch):
    statuses, shown = outcome(name, 8)
    assert statuses == {"passed"}, shown
    assert len(provider.requests) == 16
    # The agent's module makes a client when it is imported.
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    sys.modules.pop("order_agents", None)
    assert run(["replay", "tests"]) == 0
    assert len(provider.requests) == 16


class Refusing(BaseHTTPRequestHandler):
    """A proxy that forwards nothing."""

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.send_error(400)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ["answer", "later"])
def test_a_proxy_gets_no_call_on_its_way_to_the_gateway(outcome, provider, name, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as proxy:
        proxy.asked = []
        threading.Thread(target=proxy.serve_forever).start()
        for variable in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.server_port}")
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        # The agent's module makes a client when it is imported.
        sys.modules.pop("order_agents", None)
        outcome(name)
        proxy.shutdown()
    assert set(proxy.asked) == {f"{provider.url}/v1/chat/completions"}


def test_calls_in_a_thread_of_its_own_leave_tools_undecided(outcome):
    statuses, shown = outcome("in_a_thread")
    assert statuses == {"errored"}
    assert "cannot be assigned" in shown
    assert shown.count("asyncio.to_thread") == 2
    assert "x-kindlm-execution" not in shown


def test_a_call_that_blocks_the_event_loop_is_made_and_leaves_tools_undecided(outcome, provider):
    statuses, shown = outcome("blocking")
    assert statuses == {"errored"}
    assert "blocks the event loop" in shown
    asked = len(provider.requests)
    assert asked == 2
    assert run(["replay", "tests"]) == 1
    assert len(provider.requests) == asked
