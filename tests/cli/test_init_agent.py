"""`kindlm init --agent`: the first test of an agent of the user."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from scenario_project import serving_agent
from terminal_typing import Terminal

from kindlm.cli.commands.init import KINDS


def suite_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "kindlm.yaml").read_text("utf-8"))
    return found


@pytest.mark.parametrize("kind", ["fastapi", "node", "http", "program"])
def test_a_service_has_a_suite_that_is_valid(kindlm: Any, here: Path, kind: str) -> None:
    outcome = kindlm("init", "--agent", kind)
    assert outcome.code == 0
    assert outcome.err.endswith("Next: kindlm test\n")
    assert kindlm("validate").code == 0
    assert suite_in(here)["agent"]["gateway"] is True


def test_an_agent_at_a_url_has_a_suite_of_a_few_lines(kindlm: Any, here: Path) -> None:
    with serving_agent() as agent:  # it repeats the message
        outcome = kindlm("init", "--agent", agent.url)
        assert outcome.code == 0
        assert outcome.err.endswith("Next: kindlm test\n")
        assert len((here / "kindlm.yaml").read_text("utf-8").splitlines()) <= 15
        assert kindlm("test", "--quiet").code == 0
    kindlm("init", "--force", "--agent", "http://127.0.0.1:1/v1/chat/completions")
    assert suite_in(here)["agent"]["protocol"] == "chat"
    assert kindlm("validate").code == 0
    secret = kindlm("init", "--force", "--agent", "http://user:secret-word@127.0.0.1/")
    assert secret.code == 1
    assert "secret-word" not in secret.err


@pytest.mark.parametrize("kind", ["langgraph", "google-adk", "python"])
def test_an_object_has_a_scenario(kindlm: Any, here: Path, kind: str) -> None:
    outcome = kindlm("init", "shop", "--agent", kind)
    assert outcome.code == 0
    assert outcome.err.endswith("Next: cd shop && kindlm test test_agent.py\n")
    ast.parse((here / "shop" / "test_agent.py").read_text("utf-8"))
    assert "Which tool must it call? Assumed: lookup_order\n" in outcome.err
    assert "Edit shop/test_agent.py where your agent differs" in outcome.err


def test_an_object_is_imported_from_its_place(kindlm: Any, here: Path) -> None:
    assert kindlm("init", "--agent", "shop.bot:graph").code == 0
    written = (here / "test_agent.py").read_text("utf-8")
    assert "from shop.bot import graph\n" in written
    assert "agent=graph)" in written


def test_the_kind_and_what_it_needs_are_asked_for(here: Path, terminal: Terminal) -> None:
    service = ["cobol", "node", '"', 'node "my server.mjs"', "ready now", "chat", "/api/chat"]
    typed = "\n".join([*service, 'Refund "A1"!', "issue_refund", ""])
    assert terminal.init("--agent", typed=typed) == 0
    shown = terminal.shown
    assert "One of langgraph" in shown
    assert "A command, please" in shown
    assert "A path, please" in shown
    suite = suite_in(here)
    [service] = suite["serve"]
    assert service["command"] == 'node "my server.mjs"'
    assert service["ready"] == {"line": "ready now"}
    assert suite["agent"]["url"] == "http://127.0.0.1:{{serve.agent.port}}/api/chat"
    [test] = suite["tests"]
    assert test["input"] == 'Refund "A1"!'
    assert test["expect"] == {"toolCalls": "issue_refund"}


def test_the_place_of_an_object_is_asked_for(here: Path, terminal: Terminal) -> None:
    typed = 'shop\nshop.bot:graph\nRefund "A1"!\nissue_refund\n'
    assert terminal.init("--agent", "langgraph", typed=typed) == 0
    written = (here / "test_agent.py").read_text("utf-8")
    assert "from shop.bot import graph\n" in written
    assert 't.agent.send("Refund \\"A1\\"!")' in written
    assert 'tool_called("issue_refund")' in written


def test_a_url_without_its_scheme_is_shown_whole(kindlm: Any, here: Path) -> None:
    outcome = kindlm("init", "--agent", "127.0.0.1:8000/chat")
    assert outcome.code == 1
    assert "http://127.0.0.1:8000/chat" in outcome.err
    assert ", ".join(KINDS) not in outcome.err
    assert "http://127.0.0.1:8000/chat" in kindlm("init", "--agent", "a/b").err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--agent"], ["--agent", "cobol"], ["--agent", "node", "--template", "basic"]],
)
def test_what_cannot_be_meant_names_the_kinds_and_writes_nothing(
    kindlm: Any, here: Path, arguments: list[str]
) -> None:
    outcome = kindlm("init", *arguments)
    assert outcome.code == 1
    assert ", ".join(KINDS) in outcome.err or "--template" in outcome.err
    assert list(here.iterdir()) == []


def test_nothing_is_overwritten(kindlm: Any, here: Path) -> None:
    (here / "test_agent.py").write_text("mine", "utf-8")
    assert kindlm("init", "--agent", "python").code == 1
    assert (here / "test_agent.py").read_text("utf-8") == "mine"
