"""`kindlm init --template scenario`: what it asks on a terminal, and what it makes of that."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planned_shop import serving_shop
from scenario_project import LoopbackAgent
from terminal_typing import Terminal

from kindlm.cli.app import run


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_shop() as agent:
        yield agent


def configuration(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "kindlm.toml").read_text("utf-8"))


def test_without_a_terminal_nothing_is_asked(kindlm: Any, here: Path) -> None:
    assert kindlm("init", "--template", "scenario").code == 0
    assert configuration(here)["llm"] == {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "api_key_env": "OPENAI_API_KEY",
    }


def test_provider_model_and_variable_are_asked_for(here: Path, terminal: Terminal) -> None:
    typed = "anthropic\nclaude-sonnet-4-5\nSHOP_JUDGE_KEY\n\n"
    assert terminal.init("--template", "scenario", typed=typed) == 0
    assert configuration(here)["llm"] == {
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "api_key_env": "SHOP_JUDGE_KEY",
    }
    assert (here / "agent.py").is_file()


def test_a_key_is_not_taken_and_not_shown(here: Path, terminal: Terminal) -> None:
    typed = "gpt\nopenai\n\nsk-proj-abc123def456\n\n\n"
    assert terminal.init("--template", "scenario", typed=typed) == 0
    shown = terminal.shown
    assert "One of openai, anthropic, ollama" in shown
    assert "never the key" in shown
    assert "sk-proj" not in shown
    assert configuration(here)["llm"]["api_key_env"] == "OPENAI_API_KEY"
    assert "sk-proj" not in (here / "kindlm.toml").read_text("utf-8")


@pytest.mark.parametrize(
    "key",
    ["sk-proj-abc123", "AIzaSyA1234567890abcdefghijklmnop"],
)
def test_a_key_is_no_name_of_a_model(here: Path, terminal: Terminal, key: str) -> None:
    model = "ft:gpt-4o-mini-2024-07-18:my-org::AbC123dE"
    assert terminal.init("--template", "scenario", typed=f"\n{key}\n{model}\n\n\n") == 0
    shown = terminal.shown
    assert "never the key" in shown
    assert key not in shown
    assert key not in (here / "kindlm.toml").read_text("utf-8")
    assert configuration(here)["llm"]["model"] == model


def test_a_local_model_needs_no_key(here: Path, terminal: Terminal) -> None:
    assert terminal.init("--template", "scenario", typed="ollama\n\n\n") == 0
    assert configuration(here)["llm"] == {"provider": "ollama", "model": "llama3.2"}


def test_tests_are_offered_for_an_agent_of_the_user(
    here: Path,
    terminal: Terminal,
    agent: LoopbackAgent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = agent.url.removesuffix("/chat")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{base}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    typed = f"\n\n\nno url\n{agent.url}\ny\nHelps with orders; lookup_order, issue_refund\n"
    assert terminal.init("shop", "--template", "scenario", typed=typed) == 0
    assert "must be a URL" in terminal.shown
    assert configuration(here / "shop")["agent"] == {"type": "http", "url": agent.url}
    assert len(list((here / "shop" / "tests" / "generated").glob("test_*.py"))) == 10
    # As it is typed in the folder where the user is.
    told = capsys.readouterr().out
    assert "Run them: cd shop && kindlm test tests/generated\n" in told
    paths = re.findall(r"shop/\S+", told)
    assert len(paths) == 11
    assert all((here / path).is_file() for path in paths)
    monkeypatch.chdir(here / "shop")
    assert run(["test", "--quiet"]) == 0


def test_the_offer_can_be_left(here: Path, terminal: Terminal, agent: LoopbackAgent) -> None:
    assert terminal.init("--template", "scenario", "--agent", agent.url, typed="\n\n\nn\n") == 0
    assert "kindlm gen" in terminal.shown
    assert agent.requests == []


def test_what_can_be_typed_next_is_typed_from_here(
    here: Path, terminal: Terminal, agent: LoopbackAgent
) -> None:
    options = ("--template", "scenario", "--agent", agent.url)
    assert terminal.init("shop", *options, typed="\n\n\nn\n") == 0
    assert "cd shop && kindlm gen --description" in terminal.shown


@pytest.mark.parametrize("url", ["shop", "http://user:secret-word@127.0.0.1/"])
def test_a_url_of_no_use_writes_nothing(kindlm: Any, here: Path, url: str) -> None:
    outcome = kindlm("init", "--template", "scenario", "--agent", url)
    assert outcome.code == 1
    assert "secret-word" not in outcome.err
    assert list(here.iterdir()) == []


def test_other_templates_take_no_agent(kindlm: Any, here: Path) -> None:
    assert kindlm("init", "--template", "agent", "--agent", "http://127.0.0.1/").code == 1
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["back\\slash", "__LLM__"])
def test_the_project_has_the_name_of_its_folder(kindlm: Any, here: Path, name: str) -> None:
    assert kindlm("init", "--template", "scenario", here / name).code == 0
    assert configuration(here / name)["project"] == name
