"""Rendering: whatever a plan holds, files are those of the templates, with texts in literals."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kindlm.generate.forms import scenario_yaml
from kindlm.generate.questions import AgentProfile, KnownTool
from kindlm.generate.test_plan import (
    CATEGORIES,
    Order,
    PlannedScenario,
    PlannedTurn,
    read_plan,
)
from kindlm.generate.test_writing import problems_of, profile_text, rendered

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
    return read_plan(json.dumps({"scenarios": [item]}), CATEGORIES, ["look_up"]).scenarios


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
        PlannedTurn(
            "hello",
            tuple(f"right {n}" for n, _ in enumerate(turn.right)),
            tuple(f"wrong {n}" for n, _ in enumerate(turn.wrong)),
            turn.tone and "calm",
            turn.tools,
        )
        for turn in scenario.turns
    )
    user = dict.fromkeys(scenario.user, "plain")
    return replace(scenario, title="plain", why="plain", user=user, turns=turns)


@given(items())
def test_no_text_leaves_its_literal(item: dict[str, object]) -> None:
    for scenario in planned(item):
        (file,) = rendered([scenario], order(Path("nowhere")))
        (harmless,) = rendered([plain(scenario)], order(Path("nowhere")))
        compile(file.text, file.name, "exec")
        function = f"test_{file.name.removeprefix('test_').removesuffix('.py')}"
        found = [part.replace(function, "test_it") for part in skeleton(file.text)]
        name = f"test_{harmless.name.removeprefix('test_').removesuffix('.py')}"
        assert found == [part.replace(name, "test_it") for part in skeleton(harmless.text)]
        assert comments(file.text) == comments(harmless.text)
        assert all(char.isprintable() or char == "\n" for char in file.text)


@given(items())
def test_what_a_user_says_is_what_the_file_says(item: dict[str, object]) -> None:
    for scenario in planned(item):
        (file,) = rendered([scenario], order(Path("nowhere")))
        literals = {n.value for n in ast.walk(ast.parse(file.text)) if isinstance(n, ast.Constant)}
        said = {turn.says for turn in scenario.turns}
        rules = {rule for turn in scenario.turns for rule in (*turn.right, *turn.wrong)}
        assert said | rules | {scenario.title} <= literals
        document = yaml.safe_load(scenario_yaml(scenario, None))
        assert [turn["says"] for turn in document["turns"]] == [t.says for t in scenario.turns]
        assert set(document) == {"name", "description", "tags", "persona", "turns"}
        assert document["description"] == scenario.why
        for turn, plan in zip(document["turns"], scenario.turns, strict=True):
            expected = [{"judge": rule} for rule in plan.right]
            expected += [{"guardrail": {"must_not": list(plan.wrong)}}] if plan.wrong else []
            expected += [{"sentiment": plan.tone}] if plan.tone else []
            expected += [{"tool_called": tool} for tool in plan.tools]
            assert turn.get("expect", []) == expected


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
        (file,) = rendered([scenario], order(Path("nowhere")))
        stem = file.name.removesuffix(".py")
        assert stem.isidentifier()
        assert unicodedata.normalize("NFKC", stem) == stem
        assert len(file.name) < 100
        assert len(file.name.encode()) < 255
        (function,) = [n for n in ast.parse(file.text).body if isinstance(n, ast.AsyncFunctionDef)]
        assert function.name == stem


def hostile_scenarios() -> list[PlannedScenario]:
    texts = [text for text in HOSTILE if text.strip()]
    found = []
    for number, text in enumerate(texts):
        turn = {"says": text, "right": [text], "wrong": [text, "x"], "tone": text, "tools": []}
        item = {
            "category": "edge",
            "title": f"{number} {text}",
            "why": text,
            "user": {"role": text, "tone": text, "backstory": text},
            "turns": [turn, turn],
        }
        found += planned(item)
    assert len(found) == len(texts)
    return found


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_hostile_files_load_as_tests(tmp_path: Path, form: str) -> None:
    files = rendered(hostile_scenarios(), order(tmp_path, form, "http://127.0.0.1:8000/a?b='c\"d"))
    assert problems_of({file.name: file.text for file in files}) == {}


def test_nothing_of_the_verification_stays(tmp_path: Path) -> None:
    """Modules could be imported later from a folder that is not ours any more."""
    path = list(sys.path)
    (file,) = rendered(hostile_scenarios()[:1], order(tmp_path, agent="http://127.0.0.1:8000"))
    assert problems_of({file.name: file.text}) == {}
    assert sys.path == path
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    assert not any("kindlm-gen-" in each for each in files if each)


def of_length(length: int) -> PlannedScenario:
    text = ('It\'s "a" word. ' * 12)[:length].strip() + "x"
    turn = PlannedTurn(text, (text, text[:9]), (text,), text, (text,))
    return PlannedScenario(
        "edge", text, text, {"role": text, "tone": text, "backstory": text}, (turn, turn)
    )


def test_files_of_texts_of_any_length_need_no_formatter(tmp_path: Path) -> None:
    scenarios = [*map(of_length, range(2, 170)), *hostile_scenarios()]
    for file in rendered(scenarios, order(tmp_path, agent="http://127.0.0.1:8000/" + "a" * 90)):
        (tmp_path / file.name).write_text(file.text, "utf-8")
    for command in (["format", "--diff"], ["check", "--extend-select", "E501"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[:3000] + done.stderr[:3000]


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
    (file,) = rendered(planned(item), order(tmp_path))
    assert len(file.text) < 10_000
    assert problems_of({file.name: file.text}) == {}


def test_names_that_are_alike_get_numbers(tmp_path: Path) -> None:
    (tmp_path / "test_edge_a_b.py").touch()
    scenarios = [
        PlannedScenario("edge", title, "w", {"role": "u"}, (PlannedTurn("a", ("b",)),))
        for title in ("a b", "A! B?", "日本語", "日本", "¡Ça va?", "Привет 1/2", "😀", "!")
    ]
    names = [file.name for file in rendered(scenarios, order(tmp_path))]
    assert names == [
        "test_edge_a_b_2.py",
        "test_edge_a_b_3.py",
        "test_edge_日本語.py",
        "test_edge_日本.py",
        "test_edge_ca_va.py",
        "test_edge_привет_1_2.py",
        "test_edge_scenario.py",
        "test_edge_scenario_2.py",
    ]


@given(TEXT.map(lambda text: "".join(c for c in text if c.isprintable())))
def test_a_profile_reads_back(text: str) -> None:
    profile = AgentProfile(text, (KnownTool("look_up", text),), (text,), text)
    assert yaml.safe_load(profile_text(profile)) == {
        "purpose": text,
        "tools": [{"name": "look_up", "description": text}],
        "constraints": [text],
        "tone": text,
    }
