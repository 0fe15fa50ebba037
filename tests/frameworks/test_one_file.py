"""The framework of docs/how-to/extending.md: a module of kindlm, or an entry point of a package."""

from __future__ import annotations

import re
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from framework_shop import Talk

from kindlm import packages
from kindlm.agents import frameworks
from kindlm.plugins import Framework

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "extending.md").read_text("utf-8")
TOYBOTS = """
from types import SimpleNamespace as Step

class Answer:
    tokens_in, tokens_out = 3, 4
    def __init__(self, text, memory):
        self.text, self.memory = " ".join([*memory, text]), [*memory, text]
        self.steps = [Step(id="1", tool="look_up", arguments={"q": text}, result="found")]

class Bot:
    async def ask(self, text, memory):
        return Answer(text, memory)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the toy framework and the module of the docs."""
    found = re.search(r"<!-- framework: works -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    assert len(found[1].splitlines()) < 40
    tmp_path.joinpath("toybots.py").write_text(textwrap.dedent(TOYBOTS))
    tmp_path.joinpath("kindlm_toybots").mkdir()
    tmp_path.joinpath("kindlm_toybots", "toybots.py").write_text(found[1])
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    frameworks._own.cache_clear()
    for name in ("toybots", "kindlm_toybots", "kindlm_toybots.toybots"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("way", ["module", "entry point"])
def test_one_file_makes_kindlm_know_a_framework(folder, monkeypatch, way):
    if way == "module":
        frameworks._own.cache_clear()
        added = [*frameworks.__path__, str(folder / "kindlm_toybots")]
        monkeypatch.setattr(frameworks, "__path__", added)
    else:
        entry = EntryPoint("toybots", "kindlm_toybots.toybots:Toybots", Framework.group)
        plugin = packages.Plugin(Framework.group, "toybots", "acme-kindlm", entry)
        monkeypatch.setattr(packages, "installed", lambda group: {"toybots": (plugin,)})
    import toybots

    first, second = Talk(toybots.Bot()).say("a", "b")
    assert (first.text, second.text) == ("a", "a b")
    (use,) = first.tool_uses
    assert (use.call.name, use.response, first.usage.total) == ("look_up", "found", 7)
    (reply,) = Talk(lambda text: toybots.Answer(text, [])).say("c")
    assert reply.tool_uses[0].call.arguments == {"q": "c"}


def test_a_faulty_package_is_an_error_of_the_agent(folder, monkeypatch):
    entry = EntryPoint("toybots", "kindlm_toybots.toybots:Nothing", Framework.group)
    plugin = packages.Plugin(Framework.group, "toybots", "acme-kindlm", entry)
    monkeypatch.setattr(packages, "installed", lambda group: {"toybots": (plugin,)})
    import toybots

    assert "acme-kindlm cannot be loaded" in Talk(toybots.Bot()).fail("a").message
