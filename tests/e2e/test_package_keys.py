"""Class variables of a package's providers and adapters count as those of kindlm's own do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from workspace import Workspace

ENTRY_POINTS = """
[kindlm.checks]
contains = acme:Lax
shouts = acme:Shouts
limits = acme:Limits
loose = acme:Loose
lax = acme:Lax
sets = acme:Sets
hyphened = acme-kindlm:Loud
[kindlm.providers]
echo-http = acme:EchoHttp
keyed = acme:Keyed
local = acme:Local
openai = acme:Local
[kindlm.agents]
bot = acme:Bot
crashing = acme:Crashing
advising = acme:Advising
plain = acme:Plain
"""

ACME = """
from enum import Enum
from pydantic import BaseModel, model_validator
from pydantic.dataclasses import dataclass
from kindlm.plugins import *

class Limits(Section):
    hard_limit: Count = 1

class Ignoring(BaseModel):
    hard_limit: int = 1

@dataclass
class Passing:
    hard_limit: int = 1

class Lax(Check):
    inner: Passing = Passing()
    def evaluate(self, transcript, context): return self.passed()

class Loose(Check):
    inner: dict[str, list[Ignoring]] = {}
    def evaluate(self, transcript, context): return self.passed()

class Sets(Check):
    words: dict[str, set[str]] = {}
    def evaluate(self, transcript, context): return self.passed()

class Mood(Enum):
    CALM = "calm"
    MERRY = "merry"

class Shouts(Check):
    mood: Mood = Mood.CALM
    word: str = ""
    times: int = 1
    limits: Maybe[Limits] = None
    least: Maybe[Count] = None
    loud: bool = False

    @model_validator(mode="after")
    def _in_order(self):
        if self.least is not None and self.least > self.times:
            raise refuse("must be at most `times`", "Lower it", key="least")
        return self

    def evaluate(self, transcript, context): return self.passed()

class Limits(Check):
    max: Count
    min_words: Maybe[Count] = None
    def evaluate(self, transcript, context): return self.passed()

class EchoHttp(Provider):
    needs_base_url = True
    takes_seed = False
    def connect(self, access):
        message = f"The path of {access.base_url} must be /v1"
        return Err(KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, "Write /v1"))

class Keyed(Provider):
    usual_key_variable = "KEYED_API_KEY"
    def connect(self, access): return Client(access.key)

class Local(Provider):
    takes_key = False
    cups: Maybe[Count] = None
    mood: str = "calm"
    def connect(self, access): return Client(access.key)

class Client(ModelClient):
    def __init__(self, key): self.key = key
    async def complete(self, request):
        quota = Quota("requests", 9, 10, 1.0)
        return Ok(ModelReply(f"key: {self.key}", "", 1, finish_reason=FinishReason.STOP))
    async def aclose(self): pass

class Bot(Adapter):
    needs_endpoint = True
    takes_headers = False
    @classmethod
    def check_endpoint(cls, endpoint):
        if not endpoint.startswith("bot:"):
            raise refuse("must begin with bot:", "Write bot:NAME")
    def open(self, target, environ): raise NotImplementedError

class Plain(Adapter):
    def open(self, target, environ): raise NotImplementedError

class Advising(Adapter):
    def advice(self, endpoint, environ): raise RuntimeError("oops")
    def open(self, target, environ): raise NotImplementedError

class Crashing(Bot):
    @classmethod
    def check_endpoint(cls, endpoint): raise RuntimeError("oops")
"""


@pytest.fixture
def suite(workspace: Workspace) -> Any:
    """Return what writes a suite with something in the place of its provider or its agent."""
    workspace.package(ENTRY_POINTS, ACME)

    def write(provider: str = "", agent: str = "", check: str = "", params: str = "{}") -> Path:
        file = workspace.root / "kindlm.yaml"
        lines = ["kindlm: 1", "project: shop", "suite: { name: orders }"]
        if provider:
            lines.append(f"providers: {{ {provider} }}")
            name = provider.partition(":")[0]
            lines.append(f"models: [{{ id: m, provider: {name}, model: x, params: {params} }}]")
        if agent:
            lines.append(f"agents: [{{ id: a, {agent} }}]")
        expect = check or "output: { contains: [key] }"
        lines += [
            "prompts: { ask: { user: Hello } }",
            f"tests: [{{ name: hello, prompt: ask, expect: {{ {expect} }} }}]",
        ]
        file.write_text("\n".join(lines) + "\n")
        return file

    return write


def validated(workspace: Workspace) -> str:
    done = workspace.run("validate", PYTHONPATH=".")
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("adapter: bot", '"endpoint"'),
        ("adapter: bot, endpoint: web", "agents[0].endpoint must begin with bot:"),
        (
            "adapter: bot, endpoint: 'bot:x', headers: { A: b }",
            "`headers` has no meaning for the adapter bot",
        ),
        (
            "adapter: crashing, endpoint: x",
            'The agent adapter "crashing" of the package acme cannot check its keys: RuntimeError',
        ),
        (
            "adapter: advising",
            'The agent adapter "advising" of the package acme cannot give advice: RuntimeError',
        ),
    ],
)
def test_an_adapter_says_which_keys_it_takes(
    workspace: Workspace, suite: Any, agent: str, message: str
) -> None:
    suite(agent=agent)
    assert message in validated(workspace)


def test_an_optional_key_may_be_left_out_beside_a_variable(
    workspace: Workspace, suite: Any
) -> None:
    suite("mine: { type: local, mood: '{{env.MOOD}}' }")
    done = workspace.run("test", PYTHONPATH=".", MOOD="merry")
    assert done.returncode == 0, done.stdout


def test_an_endpoint_has_any_scheme_and_no_password(workspace: Workspace, suite: Any) -> None:
    suite(agent="adapter: plain, endpoint: 'tcp://127.0.0.1:9000'")
    assert "no problems" in validated(workspace)
    suite(agent="adapter: plain, endpoint: 'tcp://me:hunter22@127.0.0.1:9000'")
    assert "agents[0].endpoint contains a password or a key" in validated(workspace)
    suite(agent="adapter: plain, endpoint: 'http://'")
    assert "agents[0].endpoint must be a URL" in validated(workspace)


@pytest.mark.parametrize(
    ("provider", "missing"),
    [
        ("echo-http: {}", "baseUrl"),
        ("mine: { type: echo-http }", "baseUrl"),
        ("keyed: {}", "apiKeyEnv"),
        ("mine: { type: keyed }", "baseUrl"),
    ],
)
def test_a_provider_says_which_keys_it_requires(
    workspace: Workspace, suite: Any, provider: str, missing: str
) -> None:
    suite(provider)
    name = provider.partition(":")[0]
    said = validated(workspace)
    assert f'"{missing}"' in said, said
    assert f"providers.{name}" in said, said


def test_the_schema_says_which_keys_are_required(workspace: Workspace, suite: Any) -> None:
    file = suite("echo-http: {}")
    schema = json.loads(workspace.run("schema", PYTHONPATH=".").stdout)
    entry = schema["properties"]["providers"]["additionalProperties"]["anyOf"]
    required = {str(form["properties"]["type"]): form.get("required") for form in entry[1:]}
    assert required["{'const': 'echo-http'}"] == ["baseUrl"]
    for agent, is_valid in (
        ({"id": "a", "adapter": "bot"}, False),
        ({"id": "a", "adapter": "bot", "endpoint": "bot:x"}, True),
        ({"id": "a", "adapter": "bot", "url": "bot:x"}, True),
        ({"id": "a", "adapter": "advising"}, True),
    ):
        config = {**yaml.safe_load(file.read_text()), "agents": [agent]}
        assert Draft202012Validator(schema).is_valid(config) is is_valid, agent


def test_the_schema_has_the_values_of_an_enum(workspace: Workspace, suite: Any) -> None:
    file = suite("scripted: { replies: [{ text: Hi }] }", check="shouts: { mood: merry }")
    done = workspace.run("schema", PYTHONPATH=".")
    schema = json.loads(done.stdout)
    config = yaml.safe_load(file.read_text())
    assert Draft202012Validator(schema).is_valid(config)
    config["tests"][0]["expect"]["shouts"]["mood"] = "angry"
    assert not Draft202012Validator(schema).is_valid(config)


@pytest.mark.parametrize(
    ("written", "is_replaced"), [("{{env.WORD}}", True), ("{{name}}", False)], ids=str
)
def test_only_variables_of_tests_are_not_replaced_in_options_of_checks(
    workspace: Workspace, suite: Any, written: str, is_replaced: bool
) -> None:
    file = suite("scripted: { replies: [{ text: Hi }] }", check=f"shouts: {{ word: '{written}' }}")
    file.write_text(file.read_text().replace("expect:", "vars: { name: Ann }, expect:"))
    done = workspace.run("validate", PYTHONPATH=".", WORD="hello")
    said = done.stdout + done.stderr
    assert (f"{written} is not replaced" in said) is not is_replaced, said


def test_a_provider_that_takes_no_key_needs_none(workspace: Workspace, suite: Any) -> None:
    suite("local: { apiKeyEnv: NOT_SET }", check="output: { contains: ['key: None'] }")
    done = workspace.run("test", PYTHONPATH=".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_type_is_recognised(workspace: Workspace, suite: Any) -> None:
    suite("mine: { type: echo-htp }")
    said = validated(workspace)
    assert 'Unknown provider "echo-htp"' in said
    assert 'Did you mean "echo-http"?' in said


@pytest.mark.parametrize(
    ("written", "message", "names"),
    [
        (
            {"provider": "mine: { type: parrot, style: x }"},
            'Unknown provider "parrot"',
            "echo-http, keyed, local, ",
        ),
        (
            {"provider": "parrot: { style: x }"},
            'Unknown provider "parrot"',
            "echo-http, keyed, local, ",
        ),
        (
            {"agent": "adapter: clerk, style: x"},
            'Unknown adapter "clerk"',
            "advising, bot, crashing",
        ),
        (
            {"check": "sentences: { max: 3 }"},
            'Unknown key "sentences"',
            "hyphened, lax, limits, loose, ",
        ),
    ],
)
def test_an_unknown_name_may_be_one_of_a_package(
    workspace: Workspace, suite: Any, written: dict[str, str], message: str, names: str
) -> None:
    suite(**{"provider": "scripted: { replies: [{ text: Hi }] }"} | written)
    said = " ".join(validated(workspace).split())
    assert message in said
    assert names in said
    assert "If a package provides it: pip install PACKAGE" in said
    assert "…." not in said
    # What its options are is not known.
    assert said.count("✗") == 1


def test_an_unknown_report_may_be_one_of_a_package(workspace: Workspace, suite: Any) -> None:
    suite("scripted: { replies: [{ text: Hi }] }")
    done = workspace.run("test", "--reporter", "spreadsheet", PYTHONPATH=".")
    assert "If a package provides it: pip install PACKAGE" in done.stderr


@pytest.mark.parametrize(
    ("check", "guess", "missing"),
    [
        ("limits: { maks: 3 }", 'Did you mean "max"?', False),
        ("limits: { maks: 3, max: 3 }", "Known keys: max, minWords", False),
        ("limits: { min_words: 3, maks: 3 }", 'Did you mean "max"?', False),
        ("limits: { unit: words }", "Known keys: max, minWords", True),
    ],
)
def test_a_required_option_is_recognised(
    workspace: Workspace, suite: Any, check: str, guess: str, missing: bool
) -> None:
    suite("scripted: { replies: [{ text: Hi }] }", check=check)
    said = validated(workspace)
    assert guess in said
    assert ('The key "max" is missing' in said) is missing


def test_the_warning_of_a_seed_names_the_provider(workspace: Workspace, suite: Any) -> None:
    suite("echo-http: { baseUrl: 'http://127.0.0.1:1/v2' }", params="{ seed: 1 }")
    said = " ".join(validated(workspace).split())
    assert 'The provider "echo-http" takes no seed, so it is not sent' in said


def test_connect_may_return_an_error(workspace: Workspace, suite: Any) -> None:
    suite("echo-http: { baseUrl: 'http://127.0.0.1:1/v2' }")
    done = workspace.run("test", PYTHONPATH=".")
    said = " ".join((done.stdout + done.stderr).split())
    assert "The path of http://127.0.0.1:1/v2 must be /v1" in said
    assert "CONFIG_VALIDATION_ERROR" in said
    assert "UNKNOWN_ERROR" not in said
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("check", "messages"),
    [
        (
            "shouts: { times: 3.0 }",
            ["shouts.times must be a whole number, but is the number 3.0"],
        ),
        ("shouts: { least: 1.0 }", []),
        ("shouts: { limits: { hardLimit: 2 } }", []),
        (
            "shouts: { limits: { hardLimt: 2 } }",
            ['Unknown key "hardLimt"', 'Did you mean "hardLimit"?'],
        ),
        (
            "loose: { inner: { a: [{ hrdLimit: 2 }] } }",
            [
                'The check "loose" of the package acme has options in `Ignoring`,',
                "which is not a subclass of kindlm.plugins.Section",
            ],
        ),
        (
            "lax: { inner: { hrdLimit: 2 } }",
            ['The check "lax" of the package acme has options in `Passing`,'],
        ),
        (
            "sets: {}",
            ['The check "sets" of the package acme has options in a set, whose order changes'],
        ),
        (
            "hyphened: {}",
            [
                'The check "hyphened" of the package acme is registered as "acme-kindlm:Loud"',
                "not as `module:Class`",
            ],
        ),
        ("shouts: { least: 2 }", ["expect.shouts.least must be at most `times`", "Lower it"]),
        ("shouts: { loud: yes }", ['must be true or false, but is the text "yes"']),
        ("shouts: { loud: 'true' }", ["Write it without quotes"]),
    ],
)
def test_options_are_refused_at_their_keys(
    workspace: Workspace, suite: Any, check: str, messages: list[str]
) -> None:
    suite("scripted: { replies: [{ text: Hi }] }", check=check)
    said = validated(workspace)
    assert all(message in said for message in messages), said
    assert ("no problems" in said) != bool(messages), said
