"""Written files hold the texts that they are given as literals, whatever these are."""

from __future__ import annotations

import ast
import io
import json
import tokenize
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.config import load_suite
from kindlm.document import texts
from kindlm.errors import Err, Ok
from kindlm.formats.discovery import discover
from kindlm.generate.generation_script import profile_text
from kindlm.generate.suite_text import BRACES, Comment, literal, one_line, suite_text
from kindlm.generate.test_plan import CATEGORIES, Order, PlannedScenario, ReadPlan, rendered
from kindlm.scenarios.configuration import load_configuration
from kindlm.scenarios.scenario_suite import Surroundings, load_scenarios
from kindlm.values import filled
from kindlm.yaml_document import read_document

HOSTILE = [
    '"""',
    "'''",
    '\\"""\n    import os\n    """',
    "x\nimport os",
    "x\r\nimport os",
    "\\",
    "\\\\\\",
    "ends in a backslash\\",
    "{{ 7 * 7 }}{% raw %}{x}${env.HOME}",
    "# noqa\n# coding: latin-1",
    "a\x00b\x1b[2Jc\x85d\u2028e\u202ef\ud800g\U000e0041h\ufeff",
    "../../etc/passwd",
    "CON",
    "a" * 300,
    "- a: b\n  c: [d]",
    "漢字" * 60,
    "e\u0301" * 100,
    "'\"" * 90,
    "-\n" * 60,
    "*alias &anchor !!python/object:os.system",
]
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(), st.text("\"'\\\n {}#\t", max_size=200))
LINE = TEXT.map(lambda text: text[:500])


@st.composite
def items(draw: st.DrawFn) -> dict[str, object]:
    turn = st.fixed_dictionaries(
        {
            "says": TEXT,
            "right": st.lists(LINE, max_size=3),
            "wrong": st.lists(LINE, max_size=3),
            "tone": LINE,
            "tools": st.lists(st.just("look_up"), max_size=1),
        }
    )
    user = st.fixed_dictionaries({"role": LINE, "tone": LINE, "backstory": LINE})
    return {
        "category": draw(st.sampled_from(list(CATEGORIES))),
        "title": draw(TEXT),
        "why": draw(TEXT),
        "user": draw(user),
        "turns": draw(st.lists(turn, min_size=1, max_size=3)),
    }


def order(folder: Path, form: str = "python", agent: str | None = None) -> Order:
    return Order(
        count=10,
        categories=tuple(CATEGORIES),
        form="yaml" if form == "yaml" else "python",
        folder=folder,
        root=folder,
        written_agent=agent,
    )


def planned(item: dict[str, object]) -> tuple[PlannedScenario, ...]:
    plan = ReadPlan()
    plan.read(json.dumps({"scenarios": [item]}), CATEGORIES, ["look_up"])
    return tuple(plan.scenarios)


def skeleton(text: str) -> list[str]:
    """Everything in a file but what its string literals say, statement by statement."""

    class Blank(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant("…") if isinstance(node.value, str) else node

    return [ast.dump(Blank().visit(each)) for each in ast.parse(text).body]


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def plain(scenario: PlannedScenario) -> PlannedScenario:
    """A scenario of the same shape whose texts are harmless."""
    turns = tuple(
        {"says": "hello"}
        | {
            key: [
                each
                if isinstance(each, Comment) or "tool_called" in each
                else filled(each, lambda _: "plain")
                for each in turn[key]
            ]
            for key in turn.keys() & {"expect"}
        }
        for turn in scenario.turns
    )
    user = dict.fromkeys(scenario.user, "plain")
    return replace(scenario, title="plain", why="plain", user=user, turns=turns)


@examples(40)
@given(items())
def test_no_text_leaves_its_literal(item: dict[str, object]) -> None:
    for scenario in planned(item):
        name, text = rendered(scenario, order(Path("nowhere")))
        plain_name, harmless = rendered(plain(scenario), order(Path("nowhere")))
        compile(text, name, "exec")
        found = [part.replace(name.removesuffix(".py"), "test_it") for part in skeleton(text)]
        function = plain_name.removesuffix(".py")
        assert found == [part.replace(function, "test_it") for part in skeleton(harmless)]
        assert comments(text) == comments(harmless)
        assert all(char.isprintable() or char == "\n" for char in text)


@given(items())
def test_what_a_user_says_is_what_the_file_says(item: dict[str, object]) -> None:
    for scenario in planned(item):
        _, text = rendered(scenario, order(Path("nowhere")))
        literals = {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)}
        said = {turn["says"] for turn in scenario.turns}
        given: dict[str, Any] = item
        expected = [expected_checks(turn) for turn in given["turns"]]
        rules = {text for checks in expected for _, text in texts(checks, ())}
        assert said | rules | {scenario.title} <= literals
        document = yaml.safe_load(rendered(scenario, order(Path("nowhere"), "yaml"))[1])
        assert [turn["says"] for turn in document["turns"]] == [t["says"] for t in scenario.turns]
        assert set(document) == {"name", "description", "tags", "persona", "turns"}
        assert document["description"] == scenario.why
        assert [turn.get("expect", []) for turn in document["turns"]] == expected


def expected_checks(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the checks of an answer for a turn of the plan."""
    right, wrong = (
        list(dict.fromkeys(filter(None, (one_line(text, 500) for text in turn[name]))))
        for name in ("right", "wrong")
    )
    expected: list[dict[str, Any]] = [{"judge": rule} for rule in right]
    expected += [{"guardrail": {"must_not": wrong}}] if wrong else []
    expected += [{"sentiment": tone}] if (tone := one_line(turn["tone"], 60)) else []
    return expected + [{"tool_called": tool} for tool in turn["tools"]]


@given(TEXT, st.sampled_from(list(CATEGORIES)))
def test_names_of_files_lead_nowhere_else(title: str, category: str) -> None:
    item = {
        "category": category,
        "title": title or "x",
        "why": "",
        "user": {"role": "", "tone": "", "backstory": ""},
        "turns": [{"says": "a", "right": ["b"], "wrong": [], "tone": "", "tools": ["look_up"]}] * 2,
    }
    for scenario in planned(item):
        name, text = rendered(scenario, order(Path("nowhere")))
        stem = name.removesuffix(".py")
        assert stem.isidentifier()
        assert unicodedata.normalize("NFKC", stem) == stem
        assert len(name) < 100
        assert len(name.encode()) < 255
        (function,) = [n for n in ast.parse(text).body if isinstance(n, ast.AsyncFunctionDef)]
        assert function.name == stem


def hostile_scenarios() -> list[PlannedScenario]:
    hostile = [text for text in HOSTILE if text.strip()]
    found = []
    for number, text in enumerate(hostile):
        turn = {"says": text, "right": [text], "wrong": [text, "x"], "tone": text, "tools": []}
        item = {
            "category": "edge",
            "title": f"{number} {text}",
            "why": text,
            "user": {"role": text, "tone": text, "backstory": text},
            "turns": [turn, turn],
        }
        found += planned(item)
    assert len(found) == len(hostile)
    return found


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_hostile_files_load_as_tests(tmp_path: Path, form: str) -> None:
    (tmp_path / "kindlm.toml").write_text(
        '[agent]\ntype = "http"\nurl = "http://127.0.0.1:1"\n', "utf-8"
    )
    around = Surroundings(tmp_path, "kindlm gen", {}, load_configuration(tmp_path, {}))
    for scenario in hostile_scenarios():
        name, text = rendered(scenario, order(tmp_path, form, "http://127.0.0.1:8000/a?b='c\"d"))
        (tmp_path / name).write_text(text, "utf-8")
        discovered = discover(tmp_path / name)
        assert isinstance(discovered, Ok)
        assert [each.front_end for each in discovered.value.found] == ["scenario"]
        loaded = load_scenarios(tmp_path / name, around)
        assert not loaded.diagnostics
        assert loaded.suite is not None
        assert len(loaded.suite.cases) == 1


def test_a_megabyte_is_cut(tmp_path: Path) -> None:
    item = {
        "category": "edge",
        "title": "t" * 1_000_000,
        "why": "w " * 500_000,
        "user": {"role": "r" * 1_000_000, "tone": "", "backstory": "\x00" * 1_000_000},
        "turns": [
            {"says": "s" * 1_000_000, "right": ["x" * 10**6], "wrong": [], "tone": "", "tools": []}
        ],
    }
    (scenario,) = planned(item)
    _, text = rendered(scenario, order(tmp_path))
    assert len(text) < 10_000


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("A! B?", "test_edge_a_b.py"),
        ("日本語", "test_edge_日本語.py"),
        ("¡Ça va?", "test_edge_ça_va.py"),
        ("Привет 1/2", "test_edge_привет_1_2.py"),
        ("😀", "test_edge_scenario.py"),
    ],
)
def test_names_of_files_are_words_of_any_alphabet(title: str, name: str, tmp_path: Path) -> None:
    scenario = PlannedScenario("edge", title, "w", {"role": "u"}, ({"says": "a"},))
    assert rendered(scenario, order(tmp_path))[0] == name


@given(TEXT.map(lambda text: "".join(c for c in text if c.isprintable())))
def test_a_profile_reads_back(text: str) -> None:
    tools = [{"name": "look_up", "description": text}]
    profile = {"purpose": text, "tools": tools, "constraints": [text], "tone": text}
    assert yaml.safe_load(profile_text(profile)) == profile


TEXTS = [
    "yes", "1e3", "null", "- a", "a: b", "# no comment", "{{env.HOME}}", "", " lead", "trail ",
    "two\nlines\n", "two\n\nlines", "a\nb \nc", "tab\tb", "\x1b[31mred", "\u202eback",
    "it's \"so\"", "a" * 300, "word " * 60, "--- !!python/object:os", "*alias",
    "x\n\n", "\nx", "é ü 漢字 🎉",
]  # fmt: skip


def suite(**test: Any) -> dict[Any, Any]:
    return {
        Comment("A comment\ntests: []\x1b"): 0,
        "kindlm": 1,
        "project": "shop",
        "model": "openai/gpt-4o",
        "tests": [{"name": "one", "input": "Hi", "expect": {"output": {"contains": "x"}}, **test}],
    }


def test_every_text_is_read_as_it_was_given() -> None:
    then = [*TEXTS, {text: text for text in TEXTS}, [[{}, [], [1, None, True, 1e16]]]]
    tools = [{"name": "a", "responses": [Comment("why"), {"then": then}]}]
    made = suite_text(suite(tools=tools), Path("made.yaml"))
    assert isinstance(made, Ok)
    read = read_document(made.value.encode()).value
    assert read["tests"][0]["tools"] == [{"name": "a", "responses": [{"then": then}]}]
    assert made.value.startswith("# A comment\n# tests: []\nkindlm: 1\n")
    assert all(char.isprintable() or char == "\n" for char in made.value)


@pytest.mark.parametrize("text", ["{{env.HOME}}", "{{{{name}}}}", "{{{x}}}", "{ {{ y }} }{{"])
def test_a_literal_text_has_no_placeholders(text: str, tmp_path: Path) -> None:
    made = suite_text(suite(input=literal(text), vars=BRACES), Path("made.yaml"))
    assert isinstance(made, Ok)
    loaded = load_suite(tmp_path / "made.yaml", text=made.value.encode()).suite
    assert loaded is not None
    assert loaded.cases[0].prompt.user == text


def test_a_suite_that_cannot_be_loaded_is_an_error_with_its_place() -> None:
    made = suite_text(suite(tols=[]), Path("made.yaml"))
    assert isinstance(made, Err)
    assert "tols" in made.error.message


def test_half_of_a_character_does_not_make_a_suite_that_cannot_be_loaded(tmp_path: Path) -> None:
    made = suite_text(suite(input="cut \ud83d"), Path("made.yaml"))
    assert isinstance(made, Ok), made
    loaded = load_suite(tmp_path / "made.yaml", text=made.value.encode()).suite
    assert loaded is not None
    assert loaded.cases[0].prompt.user == "cut \ufffd"
