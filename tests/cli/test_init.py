"""`kindlm init`: what it asks and writes, and what it leaves alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from planned_shop import serving_shop
from scenario_project import LoopbackAgent, serving_agent
from terminal_typing import Terminal

from kindlm.cli.app import run
from kindlm.cli.commands.init import KINDS

TEMPLATES = ["basic", "agent", "compliance", "evalview", "scenario"]
CARD = b"4111 1111 1111 1111"
"""What the agent of one template is told: it is not recorded."""


def test_the_next_command_is_reported(kindlm: Any) -> None:
    assert kindlm("init").err.endswith("Next: kindlm test\n")
    assert kindlm("init", "my shop").err.endswith("Next: cd 'my shop' && kindlm test\n")


def test_editors_find_the_schema_that_was_written(kindlm: Any, here: Path) -> None:
    kindlm("init")
    first = (here / "kindlm.yaml").read_text("utf-8").splitlines()[0]
    _, _, named = first.partition("# yaml-language-server: $schema=")
    schema = json.loads((here / named).read_text("utf-8"))
    assert "tests" in schema["properties"]


@pytest.mark.parametrize("name", ['q"uote: #1', "no", "日本"])
def test_the_project_has_the_name_of_its_folder(kindlm: Any, here: Path, name: str) -> None:
    kindlm("init", here / name)
    written = yaml.safe_load((here / name / "kindlm.yaml").read_text("utf-8"))
    assert written["project"] == name


NOT_UTF8 = pytest.param(
    b"caf\xe9", marks=pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses it")
)


@pytest.mark.parametrize("name", [NOT_UTF8, b"caf\x7f", "caf\x85".encode(), "caf\ufdd0".encode()])
def test_a_character_of_a_folder_that_yaml_refuses_is_replaced(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    folder = here / os.fsdecode(name)
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert kindlm("init").code == 0
    assert yaml.safe_load(Path("kindlm.yaml").read_text("utf-8"))["project"] == "caf?"
    assert kindlm("validate").code == 0


def test_nothing_is_overwritten(kindlm: Any, here: Path) -> None:
    (here / "agent.yaml").write_text("mine", "utf-8")
    outcome = kindlm("init", "--template", "agent")
    assert outcome.code == 1
    assert "agent.yaml already exists" in outcome.err
    assert sorted(path.name for path in here.iterdir()) == ["agent.yaml"]
    assert (here / "agent.yaml").read_text("utf-8") == "mine"


def test_nothing_is_overwritten_in_folders_of_a_template(kindlm: Any, here: Path) -> None:
    (here / ".evalview").mkdir()
    (here / ".evalview" / "config.yaml").write_text("mine", "utf-8")
    outcome = kindlm("init", "--template", "evalview")
    assert outcome.code == 1
    assert ".evalview/config.yaml already exists" in outcome.err
    assert [path.name for path in here.iterdir()] == [".evalview"]
    assert kindlm("init", "--template", "evalview", "--force").code == 0
    assert (here / "tests" / "refund.yaml").is_file()


def test_the_schema_is_there_for_suites_alone(kindlm: Any, here: Path) -> None:
    kindlm("init", "--template", "evalview")
    assert not (here / ".kindlm").exists()


@pytest.mark.parametrize("before", ["", "*.pyc"])
def test_git_ignores_the_history_and_not_the_schema(kindlm: Any, here: Path, before: str) -> None:
    subprocess.run(["git", "init", "-q", here], check=True)
    if before:
        (here / ".gitignore").write_text(before, "utf-8")
    kindlm("init")
    kindlm("init", "--force")
    (here / ".kindlm" / "kindlm.db").touch()
    assert (here / ".gitignore").read_text("utf-8").startswith(before)
    assert (here / ".gitignore").read_text("utf-8").count(".kindlm/*") == 1
    listed = subprocess.run(
        ["git", "-C", here, "ls-files", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.split() == [".gitignore", ".kindlm/kindlm.schema.json", "kindlm.yaml"]


def test_a_gitignore_that_knows_kindlm_stays_as_it_is(kindlm: Any, here: Path) -> None:
    (here / ".gitignore").write_text("/.kindlm/\n", "utf-8")
    kindlm("init")
    assert (here / ".gitignore").read_text("utf-8") == "/.kindlm/\n"


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_runs_without_key_or_network(kindlm: Any, here: Path, template: str) -> None:
    assert kindlm("init", "--template", template).code == 0
    validated = kindlm("validate", "--format", "json")
    assert (validated.code, json.loads(validated.out)["diagnostics"]) == (0, [])
    if template == "compliance":
        assert CARD in (here / "kindlm.yaml").read_bytes()
    outcome = kindlm("test", "--no-progress")
    assert outcome.code == 0, outcome.err + outcome.out
    assert kindlm("runs").out.count(" passed ") == 1
    recorded = [path for path in (here / ".kindlm").rglob("*") if path.is_file()]
    assert not [path for path in recorded if CARD in path.read_bytes()]
    if template == "compliance":
        (document,) = (here / "compliance-reports").iterdir()
        written = document.read_text("utf-8")
        assert written.startswith("# Test evidence for ACME support assistant\n")


def test_settings_are_added_to_those_there_are(kindlm: Any, here: Path) -> None:
    (here / ".env").write_text("MINE=1", "utf-8")
    kindlm("init", "--template", "agent")
    kindlm("init", "--template", "agent", "--force")
    lines = (here / ".env").read_text("utf-8").splitlines()
    assert lines[0] == "MINE=1"
    assert sum(line.startswith("LOCAL_AGENT_KEY=") for line in lines) == 1


def test_a_file_in_the_way_is_an_error_with_its_place(kindlm: Any, here: Path) -> None:
    (here / "shop").write_text("a file", "utf-8")
    outcome = kindlm("init", "shop")
    assert outcome.code == 1
    assert outcome.err.startswith("✗ File exists: 'shop'.\n")


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


@pytest.mark.parametrize("kind", ["langgraph", "LangGraph", "google-adk", "python"])
def test_an_object_has_a_scenario(kindlm: Any, here: Path, kind: str) -> None:
    outcome = kindlm("init", "shop", "--agent", kind)
    assert outcome.code == 0
    assert outcome.err.endswith("Next: cd shop && kindlm test test_agent.py\n")
    ast.parse((here / "shop" / "test_agent.py").read_text("utf-8"))
    assert "Which tool must it call? Assumed: lookup_order\n" in outcome.err
    assert "Edit shop/test_agent.py where your agent differs" in outcome.err


@pytest.mark.parametrize(
    ("place", "module"), [("shop.bot:graph", "shop.bot"), ("bot.py:graph", "bot")]
)
def test_an_object_is_imported_from_its_place(
    kindlm: Any, here: Path, place: str, module: str
) -> None:
    assert kindlm("init", "--agent", place).code == 0
    written = (here / "test_agent.py").read_text("utf-8")
    assert f"from {module} import graph\n" in written
    assert "agent=graph)" in written


def test_the_kind_and_what_it_needs_are_asked_for(here: Path, terminal: Terminal) -> None:
    service = ["cobol", "node", '"', 'node "my server.mjs"', "ready now", "chat", "/api/chat"]
    typed = "\n".join([*service, 'Refund "A1"!', "issue_refund", ""])
    assert terminal.init("--agent", typed=typed) == 0
    shown = terminal.shown
    assert "Write one of langgraph" in shown
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


_URL = "http://127.0.0.1:8017/chat"


@pytest.mark.parametrize(
    "typed", [_URL, f"127.0.0.1:8017/chat\n{_URL}", f"http\n{_URL}", f"program\n{_URL}"]
)
def test_a_url_is_taken_wherever_an_agent_is_asked_for(
    here: Path, terminal: Terminal, typed: str
) -> None:
    assert terminal.init("--agent", typed=f"{typed}\nHi\nhello\n") == 0
    assert ("Write the whole URL" in terminal.shown) == typed.startswith("127")
    assert suite_in(here)["agent"]["url"] == _URL
    assert "serve" not in suite_in(here)


def test_the_place_of_an_object_is_taken_as_an_agent(here: Path, terminal: Terminal) -> None:
    assert terminal.init("--agent", typed="shop.bot:graph\nHi\nissue_refund\n") == 0
    assert "from shop.bot import graph\n" in (here / "test_agent.py").read_text("utf-8")


def test_a_secret_in_a_url_is_not_taken_as_an_agent(here: Path, terminal: Terminal) -> None:
    typed = f"http://user:secret-word@127.0.0.1/\n{_URL}\nHi\nhello\n"
    assert terminal.init("--agent", typed=typed) == 0
    assert "secret-word" not in terminal.shown
    assert suite_in(here)["agent"]["url"] == _URL


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


def test_a_test_of_an_agent_is_not_overwritten(kindlm: Any, here: Path) -> None:
    (here / "test_agent.py").write_text("mine", "utf-8")
    assert kindlm("init", "--agent", "python").code == 1
    assert (here / "test_agent.py").read_text("utf-8") == "mine"


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
    shown = terminal.shown
    assert "must be a URL" in shown
    assert f"In {here / 'shop'}:" in shown
    assert configuration(here / "shop")["agent"] == {"type": "http", "url": agent.url}
    assert len(list((here / "shop" / "tests" / "generated").glob("test_*.py"))) == 10
    told = capsys.readouterr().out
    assert "Run them: kindlm test tests/generated\n" in told
    paths = re.findall(r"tests/generated/\S+", told)
    assert len(paths) == 11
    assert all((here / "shop" / path).is_file() for path in paths)
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


_OF_NO_USE = ["shop", "http://user:secret-word@127.0.0.1/", "http://127.0.0.1/?q={{message}}"]


@pytest.mark.parametrize("options", [(), ("--template", "scenario")])
@pytest.mark.parametrize("url", _OF_NO_USE)
def test_a_url_of_no_use_writes_nothing(
    kindlm: Any, here: Path, url: str, options: tuple[str, ...]
) -> None:
    outcome = kindlm("init", *options, "--agent", url)
    assert outcome.code == 1
    assert "secret-word" not in outcome.err
    assert list(here.iterdir()) == []


def test_other_templates_take_no_agent(kindlm: Any, here: Path) -> None:
    assert kindlm("init", "--template", "agent", "--agent", "http://127.0.0.1/").code == 1
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["back\\slash", "__LLM__"])
def test_scenarios_have_the_name_of_their_folder(kindlm: Any, here: Path, name: str) -> None:
    assert kindlm("init", "--template", "scenario", here / name).code == 0
    assert configuration(here / name)["project"] == name
