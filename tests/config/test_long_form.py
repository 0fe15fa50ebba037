"""Short forms of kindlm.yaml: the same suite as their long twins."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.config import LoadedSuite, load_suite
from kindlm.config.files import ReferencedFiles
from kindlm.config.long_form import write_out
from kindlm.config.published import schema_with_packages
from kindlm.yaml_document import read_document

Load = Callable[..., LoadedSuite]
Place = tuple[str | int, ...]

OF_USERS = {"argsMatch", "arguments", "body", "defaultResponse", "headers", "parameters"}
OF_USERS |= {"setState", "then", "vars", "when", "whenState"}
"""Keys with values of any form: a list of one is what it is there."""


def alone(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the places of lists of one entry and of mappings with one key, the inner ones first."""
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, (dict, list)) and key not in OF_USERS:
            yield from alone(part, (*path, key))
    if len(value) == 1:
        yield path


def shorter(config: Any, places: Iterator[Place] | list[Place]) -> Any:
    """Return a configuration with what is in some lists and mappings in place of these."""
    config = copy.deepcopy(config)
    for path in places:
        above = config
        for part in path[:-1]:
            above = above[part]
        inside = above[path[-1]]
        above[path[-1]] = next(iter(inside.values() if isinstance(inside, dict) else inside))
    return config


@cache
def _shortenings(text: str) -> tuple[Any, list[Place]]:
    """Return a configuration, and the places where the published schema takes what is inside."""
    schema = jsonschema.Draft202012Validator(schema_with_packages()[0])
    config = read_document(text.encode()).value
    places = [path for path in alone(config) if path[-1] != "ready"]  # a text there is a URL
    return config, [path for path in places if schema.is_valid(shorter(config, [path]))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(data=st.data())
def test_a_value_alone_is_a_list_of_one_or_the_main_key(
    data: st.DataObject, complete: str, tmp_path: Path
) -> None:
    config, places = _shortenings(complete)
    assert len(places) > 15
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True).map(set))
    path = tmp_path / "kindlm.yaml"

    def loaded(written: Any) -> Any:
        path.write_text(json.dumps(written), encoding="utf-8")
        suite = load_suite(path, root=tmp_path).suite
        assert suite, written
        return suite.config_text

    short = shorter(config, [place for place in places if place in chosen])
    assert loaded(short) == loaded(config)


EXPECT = "expect: {output: {contains: [hello]}}"

TWINS = """
agent: http://h/chat
tests: [{name: a, input: Hi, expect: {}}]
--
agents: [{id: agent, adapter: http, endpoint: 'http://h/chat'}]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
==
agents: [http://h/v1/chat/completions, shop.agent:answer]
tests: {name: a, input: {system: Be kind, user: Hi}, expect: {}}
--
agents:
- {id: agent, adapter: http, endpoint: 'http://h/v1/chat/completions', protocol: chat}
- {id: agent-2, adapter: python, endpoint: 'shop.agent:answer'}
prompts: {a: {system: Be kind, user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
==
model: openai/gpt-4o
tests:
- name: a
  input: [{role: system, content: Be kind}, Hi, {role: user, content: Bye}]
  expect: {}
--
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}}
models: [{id: openai/gpt-4o, provider: openai, model: gpt-4o}]
prompts: {a: {system: Be kind, user: Hi}}
tests: [{name: a, prompt: a, conversation: [{user: Bye}], expect: {}}]
==
agent: http://h/chat
tests: [{name: a, input: Hi, expect: {judge: Is kind}}]
defaults: {judgeModel: openai/gpt-4o}
--
agents: [{id: agent, adapter: http, endpoint: 'http://h/chat'}]
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}}
models: [{id: openai/gpt-4o, provider: openai, model: gpt-4o, role: judge}]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {judge: [{criteria: Is kind}]}}]
defaults: {judgeModel: openai/gpt-4o}
==
agent: http://h/chat
tests:
- name: a
  input: Hi
  expect: {judge: {criteria: Is kind, model: openai/gpt-4o}}
  conversation: {user: Bye, expect: {judge: {criteria: Is short, model: groq/llama}}}
--
agents: [{id: agent, adapter: http, endpoint: 'http://h/chat'}]
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}, groq: {apiKeyEnv: GROQ_API_KEY}}
models:
- {id: openai/gpt-4o, provider: openai, model: gpt-4o, role: judge}
- {id: groq/llama, provider: groq, model: llama, role: judge}
prompts: {a: {user: Hi}}
tests:
- name: a
  prompt: a
  expect: {judge: [{criteria: Is kind, model: openai/gpt-4o}]}
  conversation: [{user: Bye, expect: {judge: [{criteria: Is short, model: groq/llama}]}}]
==
agent: http://h/chat
prompts: {formal: {system: Sir.}, casual: 'Hey, {{input}}'}
tests:
- {name: a, input: Hi, expect: {}}
- {name: b, prompts: formal, input: Ho, expect: {}}
--
agents: [{id: agent, adapter: http, endpoint: 'http://h/chat'}]
prompts: {formal: {system: Sir., user: '{{input}}'}, casual: {user: 'Hey, {{input}}'}}
tests:
- {name: a, prompts: [formal, casual], vars: {input: Hi}, expect: {}}
- {name: b, prompt: formal, vars: {input: Ho}, expect: {}}
==
model: groq/llama
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
--
providers: {groq: {apiKeyEnv: GROQ_API_KEY}}
models: [{id: groq/llama, provider: groq, model: llama}]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
==
providers: {fast: {type: groq}, azure: {resource: acme}}
models: [fast/llama, azure/gpt]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
--
providers:
  fast: {type: groq, apiKeyEnv: GROQ_API_KEY}
  azure: {resource: acme, apiKeyEnv: AZURE_OPENAI_API_KEY}
models:
- {id: fast/llama, provider: fast, model: llama}
- {id: azure/gpt, provider: azure, model: gpt}
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
==
providers: {groq: {type: openai, baseUrl: 'http://h/v1'}}
models: [groq/llama, deepseek/chat]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
--
providers: {groq: {type: openai, baseUrl: 'http://h/v1'}}
models:
- {id: groq/llama, provider: groq, model: llama}
- {id: deepseek/chat, provider: groq, model: deepseek/chat}
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
==
providers: {fake: {type: scripted, replies: [{text: Hi}]}}
models: [groq/llama, acme/model]
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
--
providers: {fake: {type: scripted, replies: [{text: Hi}]}, groq: {apiKeyEnv: GROQ_API_KEY}}
models:
- {id: groq/llama, provider: groq, model: llama}
- {id: acme/model, provider: fake, model: acme/model}
prompts: {a: {user: Hi}}
tests: [{name: a, prompt: a, expect: {}}]
"""


FORMS = [form for twins in TWINS.split("\n==\n") for form in twins.split("\n--\n")]
FORMS += [
    "prompts: ['Say {{input}}', {system: Be kind}]\ntests: {name: a, input: Hi, expect: {}}",
    "prompts: 'Say {{input}}'\ntests: {name: a, input: Hi, expect: {}}",
    "suite: {tags: smoke}\ntests: {name: a, command: run, expect: {}}",
    "tests: {name: a, command: run, expect: {guardrails: {canary: output, pii: true}}}",
    "tests: {name: a, command: [run], tools: [look, {mcp: shop}], expect: {judge: safe}}",
]


@pytest.mark.parametrize("text", FORMS)
def test_the_published_schema_takes_each_form(text: str) -> None:
    schema = jsonschema.Draft202012Validator(schema_with_packages()[0])
    assert list(schema.iter_errors(read_document(text.encode()).value)) == []


@pytest.mark.parametrize("twins", TWINS.split("\n==\n"))
def test_what_is_left_out_is_filled_in(load: Load, twins: str) -> None:
    short, long = twins.split("\n--\n")
    one = load(short).suite
    other = load(f"kindlm: 1\nproject: project\nsuite: {{name: project}}\n{long}").suite
    assert one
    assert other
    assert one.config_text == other.config_text
    parts = [
        [(case.name, case.prompt, case.follow_ups, case.targets) for case in suite.cases]
        for suite in (one, other)
    ]
    assert parts[0] == parts[1]


def test_an_input_goes_into_the_prompts_whose_files_have_it(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sys.md").write_text("Be kind.")
    (tmp_path / "user.md").write_text("Q: {{input}}")
    suite = load(
        "agent: http://h/chat\n"
        "prompts: {p: {systemFile: sys.md, userFile: user.md}}\n"
        f"tests: [{{name: a, input: Hi, {EXPECT}}}]"
    ).suite
    assert suite
    [case] = suite.cases
    assert (case.prompt.system, case.prompt.user) == ("Be kind.", "Q: Hi")


def test_an_input_is_refused_if_its_place_in_the_prompt_has_spaces(load: Load) -> None:
    loaded = load(
        "model: openai/m\nprompts: {p: 'Q: {{ input }}'}\n"
        f"tests: [{{name: a, input: Hi, {EXPECT}}}]"
    )
    found = [(each.severity, each.path, each.error.message) for each in loaded.diagnostics]
    assert found == [
        ("error", "tests[0].input", "It is not sent: {{ input }} in the prompt is not replaced"),
        ("warning", "prompts.p", "{{ input }} is not replaced: it is not a placeholder"),
    ]
    assert loaded.suite is None


def test_an_input_is_sent_although_the_prompt_also_has_it_with_spaces(load: Load) -> None:
    loaded = load(
        "model: openai/m\nprompts: {p: 'Q: {{input}} for {{ input }}'}\n"
        f"tests: [{{name: a, input: Hi, {EXPECT}}}]"
    )
    assert [each.severity for each in loaded.diagnostics] == ["warning"]
    assert loaded.suite
    [case] = loaded.suite.cases
    assert case.prompt.user == "Q: Hi for {{ input }}"


def test_a_test_runs_with_each_prompt_and_row_on_each_target(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,input\nfirst,Hi\nsecond,Ho\n")
    loaded = load(
        "models: [openai/a, openai/b]\n"
        "prompts: {formal: {system: Sir.}, casual: 'Hey, {{input}}'}\n"
        f"tests: [{{name: a, varsFrom: rows.csv, {EXPECT}}}]"
    )
    assert loaded.diagnostics == ()
    assert loaded.suite
    assert [(case.name, case.prompt.user) for case in loaded.suite.cases] == [
        ("a [formal] [first]", "Hi"),
        ("a [formal] [second]", "Ho"),
        ("a [casual] [first]", "Hey, Hi"),
        ("a [casual] [second]", "Hey, Ho"),
    ]
    assert {case.targets for case in loaded.suite.cases} == {("openai/a", "openai/b")}
    assert loaded.tests == len(loaded.suite.cases)


EXPECTED = {"output": {"contains": ["hello"]}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(data=st.data())
def test_a_test_runs_alike_whatever_stands_before_it_or_is_shared(
    data: st.DataObject, load: Load
) -> None:
    texts = st.sampled_from(["Hello", "{{input}}", "{{shop}}: {{input}}"])
    prompts = data.draw(st.fixed_dictionaries({}, optional={"p": texts, "q": texts}))
    inputs = st.sampled_from(["Hi", {"user": "Hey"}, [{"role": "user", "content": "Ho"}], prompts])
    some: Any = {"vars": st.just({"shop": "A"}), "input": inputs, "prompt": st.just("p")}
    one = st.fixed_dictionaries({"expect": st.just(EXPECTED)}, optional=some)
    drawn = data.draw(st.lists(one, min_size=2, max_size=3))
    tests = [{"name": name, **test} for name, test in zip("abc", drawn, strict=False)]

    def loaded(text: str) -> Any:
        suite = load(text).suite
        cases = suite.cases if suite else ()
        return sorted((each.name, each.prompt.user) for each in cases)

    def written(tests: Any) -> Any:
        return {"agent": "http://h/chat", "prompts": prompts, "tests": tests}

    with_aliases = yaml.safe_dump(written(tests), sort_keys=False)
    assert loaded(with_aliases) == loaded(json.dumps(written(tests[::-1])))


@pytest.mark.parametrize(
    ("test", "place"),
    [
        ("name: a, input: ''", "tests[0].input"),
        ("name: a, input: 5", "tests[0].input"),
        ("name: a, input: [{role: assistant, content: Hi}]", "tests[0].input"),
        ("name: a, input: [{role: user, content: ''}]", "tests[0].input[0].content"),
        ("name: a, input: [Hi, Ho], conversation: [{user: Hey}]", "tests[0].input"),
        ("name: a, input: {system: Hi, usr: Ho}", "tests[0].input.usr"),
        ("name: a, input: Hi, vars: {input: Ho}, command: run it", "tests[0].input"),
        ("name: a, input: 'Hi {{who}}'", "tests[0].input"),
    ],
)
def test_an_input_that_does_not_fit_is_reported_where_it_is_written(
    load: Load, test: str, place: str
) -> None:
    loaded = load(f"agent: http://h/chat\ntests: [{{{test}, {EXPECT}}}]")
    assert [each.path for each in loaded.diagnostics] == [place]
    assert loaded.diagnostics[0].error.where
    assert loaded.diagnostics[0].error.where.line == 2
    assert "prompts" not in loaded.diagnostics[0].error.message


@pytest.mark.parametrize("written", ["tests: 7", "tests: Hi", "tests: true"])
def test_what_no_entry_can_be_written_as_has_to_be_a_list(load: Load, written: str) -> None:
    (found,) = load(f"agent: http://h/chat\n{written}").diagnostics
    assert found.path == "tests"
    assert found.error.message.startswith("tests must be a list, but is ")
    assert found.error.hint
    assert "`tests: [{name: greets," in found.error.hint


def test_names_of_prompts_stay_short_whatever_tests_are_called(tmp_path: Path) -> None:
    tests = [{"name": "same", "input": "Hi"}] * 300
    document = read_document(json.dumps({"tests": tests}).encode())
    write_out(document, lambda: "suite", lambda: "project", ReferencedFiles(tmp_path))
    names = list(document.value["prompts"])
    assert names[:2] == ["same", "same (input)"]
    assert len(names) == 300
    assert max(map(len, names)) < 20
