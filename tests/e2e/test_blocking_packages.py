"""Code of a package that holds up the event loop is ended; the other tests run all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# kindlm whose time runs faster where it waits for an event loop.
HASTY = """
from kindlm import guard
guard._POLL_S, guard._SILENT_POLLS = 0.2, 5
from kindlm.__main__ import main
main()
"""

ENTRY_POINTS = """
[kindlm.checks]
polite = acme:Polite
[kindlm.providers]
echo = acme:Echo
[kindlm.agents]
bot = acme:Bot
"""

ACME = """
import time
from kindlm.plugins import *

def block(where):
    while where == "WHERE": time.sleep(60)

class Polite(Check):
    async def evaluate(self, transcript, context):
        return self.passed()

class Echo(Provider):
    def connect(self, access): return Client()

class Client(ModelClient):
    async def complete(self, request):
        block("complete")
        return Ok(ModelReply("Thank you.", "", 1))
    async def aclose(self): pass

class Bot(Adapter):
    def open(self, target, environ):
        block("open")
        return Talk()

class Talk(Agent):
    async def __aenter__(self): return self
    async def __aexit__(self, *exception): block("close")
    async def send(self, request):
        return Ok(AgentReply("Thank you.", None, 1))
"""

SUITE = """
kindlm: 1
project: shop
suite: { name: orders }
providers:
  fake: { type: scripted, replies: [{ text: "Thank you." }] }
  own: { type: echo }
models:
  - { id: fake, provider: fake, model: x }
  - { id: own, provider: own, model: x }
agents: [{ id: bot, adapter: bot }]
prompts: { ask: { user: "Where is A1?" } }
defaults: { timeoutMs: 1000, executionTimeoutMs: 1000 }
tests:
  - { name: plain, prompt: ask, models: [fake], expect: { output: { contains: [Thank] } } }
  - { name: check, prompt: ask, models: [fake], expect: { polite: {} } }
  - { name: complete, prompt: ask, models: [own], expect: { output: { contains: [Thank] } } }
  - { name: bot, prompt: ask, models: [bot], expect: { output: { contains: [Thank] } } }
"""


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("nowhere", None),
        ("complete", "complete"),
        ("open", "bot"),
        ("close", "bot"),
    ],
)
def test_what_blocks_is_errored_and_the_rest_runs(
    where: str, test: str | None, tmp_path: Path
) -> None:
    files = {
        "hasty.py": HASTY,
        "acme.py": ACME.replace("WHERE", where),
        "acme-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1\n",
        "acme-1.dist-info/entry_points.txt": ENTRY_POINTS,
        "kindlm.yaml": SUITE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "hasty.py", "test", "--reporter", "json=report.json"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == (0 if test is None else 1), printed
    written = (tmp_path / "report.json").read_text("utf-8")
    statuses = {each["name"]: each["status"] for each in json.loads(written)["tests"]}
    names = ("plain", "check", "complete", "bot")
    assert statuses == {name: "errored" if name == test else "passed" for name in names}, printed
    assert ("Code of a package blocked the event loop" in written) == (test is not None), printed
