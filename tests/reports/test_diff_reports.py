"""The forms of a comparison: whatever models wrote, each stays what it is, and bounded."""

from __future__ import annotations

import html
import io
import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any, get_args

import jsonschema
import pytest
from compared_runs import compared, record_run
from recorded_history import History, Make

from kindlm.cli.options import DiffFormat
from kindlm.events.run import GitState
from kindlm.history.diff.run_diff import RunDiff
from kindlm.reports.diff import write_diff
from kindlm.reports.diff.phrases import headline_of
from kindlm.reports.report_registry import ReportOptions

HOSTILE = (
    "</code></details><script>alert(1)</script> | `x` ``` @everyone [link](http://evil) "
    "<img src=x onerror=alert(2)> ![i](http://evil/i.png) \x1b[31mred\x1b]0;title\x07 \u202e&amp; "
    "{{ 7001 * 7003 }}\n```\n# head\n"
)


@cache
def diff_schema() -> Any:
    return json.loads((files("kindlm.reports.diff") / "diff.schema.json").read_text("utf-8"))


def written(diff: RunDiff, form: DiffFormat, **options: Any) -> str:
    out = io.StringIO()
    write_diff(diff, form, out, ReportOptions(**options))
    return out.getvalue()


@pytest.fixture
def hostile(history: History) -> RunDiff:
    """Runs in which everything that somebody could write is an attack."""

    def execution(word: str, *, passes: bool) -> dict[str, Any]:
        text = f"{HOSTILE}{word}"
        check = Make.passed("contains", HOSTILE)
        failed = Make.failed("contains", HOSTILE, code=HOSTILE, message=text)
        return {
            "system": text,
            "output": text,
            "tools": ((HOSTILE, {HOSTILE: text}, {}),),
            "assertions": (check if passes else failed,),
        }

    record_run(
        history, "before", {HOSTILE: [execution("old", passes=True)] * 3}, label=HOSTILE, suite="s"
    )
    after = {HOSTILE: [execution("new", passes=False)] * 3, f"{HOSTILE}2": "+"}
    record_run(history, "after", after, suite="s")
    return compared(history)


@pytest.fixture
def hostile_checks(history: History) -> RunDiff:
    """Runs with the same result, of which the first makes a check whose label is an attack."""
    kept, gone = Make.passed(label=HOSTILE), Make.passed(label=f"{HOSTILE}gone")
    for run, checks in (("before", (kept, gone)), ("after", (kept,))):
        record_run(history, run, {"a": [{"assertions": checks}] * 3})
    return compared(history)


class Tags(HTMLParser):
    """Collects what a browser would take for markup."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str | None] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.addresses.update(value for name, value in attrs if name in ("href", "action"))


@pytest.mark.parametrize("attack", ["hostile", "hostile_checks"])
def test_no_text_becomes_part_of_the_page(attack: str, request: pytest.FixtureRequest) -> None:
    page = written(request.getfixturevalue(attack), "html")
    found = Tags()
    found.feed(page)
    assert not found.tags & {"script", "img", "iframe", "object", "form"}
    assert found.addresses == {"#content", "data:,"}
    assert not any(name.startswith("on") for name in found.attributes)
    assert "src" not in found.attributes
    assert "{{ 7001 * 7003 }}" in html.unescape(page)
    assert "49028003" not in page


@pytest.mark.parametrize(("form", "rest"), [("terminal", (281, 281)), ("html", (251, 251))])
def test_calls_and_arguments_that_are_not_shown_are_counted(
    history: History, form: DiffFormat, rest: tuple[int, int]
) -> None:
    names = [f"a{number}" for number in range(301)]
    for run, value in (("before", 1), ("after", 2)):
        tools = (("t", dict.fromkeys(names, value), {}), *[("t", {"n": value}, {})] * 300)
        record_run(history, run, {"a": [{"assertions": (Make.passed(),), "tools": tools}] * 3})
    text = html.unescape(written(compared(history), form))
    assert [int(found) for found in re.findall("… and ([0-9]+) more", text)] == list(rest)


def test_the_page_loads_nothing_and_runs_nothing(hostile: RunDiff) -> None:
    page = written(hostile, "html")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = html.unescape(policy[1]).split("; ")
    assert rules[0] == "default-src 'none'"
    assert not [rule for rule in rules if "script-src" in rule or "unsafe" in rule]
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("attack", ["hostile", "hostile_checks"])
def test_no_escape_sequence_reaches_a_terminal(attack: str, request: pytest.FixtureRequest) -> None:
    hostile: RunDiff = request.getfixturevalue(attack)
    for form in ("terminal", "markdown", "html"):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", written(hostile, form))
    colored = written(hostile, "terminal", color=True)
    assert not set(re.findall(r"\x1b(.)", colored)) - {"["}
    assert "\x1b[31mred" not in colored.replace("\x1b[31m✗", "")


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_no_escape_sequence_of_a_history_that_was_brought_in_reaches_a_terminal(
    history: History, form: DiffFormat
) -> None:
    escape = "\x1b[2J"
    for run, key in (("before", "one"), ("after", "two")):
        writer = history.run(run, git=GitState(commit=escape, branch=escape))
        definition = json.dumps({"config": {"tests": [{"name": "a", f"{key}{escape}": 1}]}})
        writer.suite("s", tests=[Make.planned("a")], config_hash=key, config=definition)
        writer.suite("bare", config_hash=f"{key}{escape}")
        writer.execution("a", assertions=(Make.failed() if run == "after" else Make.passed(),))
        writer.finish()
    text = written(compared(history), form, verbose=True)
    assert "\x1b" not in text
    # A commit and a branch of both runs, keys of a test, hashes of a suite.
    assert text.count("\\x1b[2J") >= 4 + 2 + 2


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_change_in_the_middle_of_a_long_prompt_is_shown(
    history: History, form: DiffFormat
) -> None:
    rule = "Be polite to customers, and never promise what you cannot keep.\n"
    for run, verb in (("before", "apologise"), ("after", "refund")):
        writer = history.run(run)
        prompt = {"prompts": {"ask": {"system": f"{rule * 3}First {verb}.\n{rule * 3}"}}}
        writer.suite(
            "s", tests=[Make.planned("a")], config_hash=run, config=json.dumps({"config": prompt})
        )
        writer.execution("a")
        writer.finish()
    text = " ".join(html.unescape(written(compared(history), form)).split())
    assert "keep.\\nFirst[- apologise-]{+ refund+}.\\nBe polite" in text


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_change_at_the_end_of_a_long_list_is_shown(history: History, form: DiffFormat) -> None:
    for run, reply in (("before", "apologise"), ("after", "refund")):
        writer = history.run(run)
        fake = {"replies": [*[{"text": f"That is answer {n}."} for n in range(9)], {"text": reply}]}
        config = json.dumps({"config": {"providers": {"fake": fake}}})
        writer.suite("s", tests=[Make.planned("a")], config_hash=run, config=config)
        writer.execution("a")
        writer.finish()
    text = " ".join(html.unescape(written(compared(history), form)).split())
    assert '"[-apologise-]{+refund+}"' in text


@pytest.mark.parametrize("attack", ["hostile", "hostile_checks"])
def test_markdown_shows_what_models_wrote_only_as_code(
    attack: str, request: pytest.FixtureRequest
) -> None:
    text = written(request.getfixturevalue(attack), "markdown")
    without_blocks = re.sub(r"(?ms)^(`{3,})[a-z]*\n.*?^\1$", "", text)
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", without_blocks)
    prose = re.sub(r"<code>.*?</code>", "", prose)
    for attack in ("@everyone", "evil", "<script", "<img", "# head"):
        assert attack not in prose
    assert prose.count("<details>") == prose.count("</details>") == 1


def test_rows_of_tables_keep_their_columns(hostile: RunDiff) -> None:
    rows = [
        line
        for line in written(hostile, "markdown").splitlines()
        if line.startswith("| ") and "→" in line
    ]
    assert rows
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {3, 5}


def test_json_is_what_its_schema_says(hostile: RunDiff) -> None:
    schema = diff_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for verbose in (False, True):
        document = json.loads(written(hostile, "json", verbose=verbose))
        jsonschema.Draft202012Validator(schema).validate(document)
        assert document["tests"][0]["name"] == HOSTILE
        assert document["verdict"]["fails"] is True


@pytest.mark.parametrize("form", get_args(DiffFormat))
def test_a_check_that_is_not_made_any_more_is_named_in_every_form(
    hostile_checks: RunDiff, form: DiffFormat
) -> None:
    text = written(hostile_checks, form, width=1_000)
    if form == "json":
        document = json.loads(text)
        jsonschema.Draft202012Validator(diff_schema()).validate(document)
        (test,) = document["tests"]
        assert (test["kind"], document["summary"]["kinds"]["other checks"]) == ("other checks", 1)
        kept, gone = test["details"]["checks"]
        assert (kept["after"]["of"], gone["before"]["of"], gone["after"]["of"]) == (3, 3, 0)
        assert gone["label"] == f"{HOSTILE}gone"
        return
    assert "same result, different checks" in text.casefold()
    assert "1 test checked something else with the same result" in text
    assert text.count("3/3 → not checked") == 1


def test_json_of_every_kind_of_test_is_what_its_schema_says(history: History) -> None:
    record_run(history, "before", {"a": "+++++", "b": "+", "c": "-", "d": "+", "gone": "+"})
    after = {"a": "++++-", "b": "-", "c": "+", "d": "", "new": "!", "fine": "+"}
    record_run(history, "after", after, finish=False).interrupt()
    document = json.loads(written(compared(history), "json"))
    jsonschema.Draft202012Validator(diff_schema()).validate(document)
    kinds = {test["name"]: test["kind"] for test in document["tests"]}
    assert kinds == {
        "a": "suspected",
        "b": "regressed",
        "c": "improved",
        "d": "not run",
        "new": "added, not passing",
        "fine": "added",
        "gone": "removed",
    }
    assert document["summary"]["kinds"]["regressed"] == 1


@pytest.mark.parametrize("form", get_args(DiffFormat))
def test_the_same_runs_give_the_same_bytes(hostile: RunDiff, history: History, form: Any) -> None:
    assert written(hostile, form) == written(compared(history), form)


def test_a_comment_has_a_bounded_size_and_whole_parts(history: History) -> None:
    names = [f"test {n} " + "ü" * 100 for n in range(60)]
    long = {"tools": (("t", {"x": "é" * 5_000}, {}),), "output": "word " * 2_000}
    record_run(history, "before", {name: [{"output": "é " * 3_000}] for name in names})
    failing = long | {"assertions": tuple(Make.failed(label=f"é{n}" * 50) for n in range(20))}
    record_run(history, "after", {name: [failing] for name in names})
    text = written(compared(history), "markdown")
    assert 20_000 < len(text.encode()) < 60_000
    assert text.count("<details>") == text.count("</details>")
    assert "kindlm show after" in text.splitlines()[-1]


def test_a_terminal_shows_the_most_important_first_and_what_to_type(history: History) -> None:
    record_run(history, "before", {"same": "+", "worse": "+++++", "maybe": "+++++"})
    record_run(history, "after", {"same": "+", "worse": "-----", "maybe": "++++-"})
    lines = written(compared(history), "terminal").splitlines()
    titles = [line for line in lines if line in ("Regressed", "Suspected", "Unchanged: 1 test")]
    assert titles == ["Regressed", "Suspected", "Unchanged: 1 test"]
    assert any("repeats on each side would settle" in line for line in lines)
    assert lines[-1].startswith("Next  kindlm show after 2")
    verdict = next(line for line in lines if line.startswith("REGRESSED"))
    assert "1 test got worse, confirmed; 1 test may have got worse" in verdict


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"a": "+++++"}, {"a": "!!!!!"}, "1 test got worse, confirmed (by errors alone)"),
        ({"a": "+++++"}, {"a": "!!!!-"}, "1 test got worse, confirmed"),
        (
            {"a": "+++++", "b": "+++++"},
            {"a": "!!!!!", "b": "-----"},
            "2 tests got worse, confirmed (1 of them by errors alone)",
        ),
        ({"a": "+", "b": "+"}, {"a": "!", "b": "!"}, "2 tests newly failed (by errors alone)"),
        ({"a": "+++++"}, {"a": "+++!!"}, "1 test may have got worse (by errors alone)"),
        ({"a": "+++++"}, {"a": "+++--"}, "1 test may have got worse"),
    ],
)
def test_the_verdict_says_which_tests_got_worse_by_errors_alone(
    history: History, before: dict[str, Any], after: dict[str, Any], said: str
) -> None:
    record_run(history, "before", before)
    record_run(history, "after", after)
    told = "; ".join(headline_of(compared(history)).reasons)
    assert told.partition("; the run as a whole")[0] == said


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("-", "+", "NOT WORSE: 1 test improved, one sample"),
        ("--", "++", "NOT WORSE: 1 test improved, suspected"),
        ("----------", "++++++++++", "IMPROVED: 1 test improved, confirmed"),
        ("+", "+", "UNCHANGED: 1 as before"),
    ],
)
def test_a_test_that_may_have_improved_is_not_unchanged(
    history: History, before: str, after: str, told: str
) -> None:
    record_run(history, "before", {"a": before})
    record_run(history, "after", {"a": after})
    diff = compared(history)
    headline = headline_of(diff)
    assert f"{headline.word}: {'; '.join(headline.reasons)}".startswith(told)
    assert headline.good


@pytest.mark.parametrize(
    ("new", "sign", "color", "mood"), [("!", "⚠️", "33", "unsure"), ("+", "✅", "32", "good")]
)
def test_new_tests_that_do_not_pass_are_no_good_news(
    history: History, new: str, sign: str, color: str, mood: str
) -> None:
    record_run(history, "before", {"same": "+"})
    record_run(history, "after", {"same": "+", "new": new})
    diff = compared(history)
    assert not diff.fails
    assert written(diff, "markdown").startswith(f"### {sign} kindlm: UNCHANGED\n")
    assert f"\x1b[1;{color}mUNCHANGED" in written(diff, "terminal", color=True)
    assert f'<div class="verdict {mood}">' in written(diff, "html")


@pytest.mark.parametrize("width", [40, 120])
def test_lines_fit_the_terminal(hostile: RunDiff, width: int) -> None:
    lines = written(hostile, "terminal", width=width).splitlines()
    assert max(len(line) for line in lines if not line.startswith("Next")) <= width


def test_repeats_that_were_added_later_are_counted_and_reported(history: History) -> None:
    record_run(history, "before", {"a": "++++++++++"})
    record_run(history, "after", {"a": "+++++++---"})
    suspected = written(compared(history), "terminal")
    assert suspected.splitlines()[-1].startswith("Next  kindlm settle before after")
    record_run(history, "more", {"a": "-" * 10}, mode="settled", source_run="after")
    diff = compared(history)
    assert "failed 7/10, then 0/10 added  regressed, confirmed" in written(
        diff, "terminal", width=120
    )
    document = json.loads(written(diff, "json"))
    jsonschema.Draft202012Validator(diff_schema()).validate(document)
    assert document["tests"][0]["added"] == {"passed": 0, "n": 10}


@pytest.mark.parametrize("sides", [("before",), ("after",), ("before", "after")])
def test_added_repeats_of_both_sides_count_in_what_is_told_of_a_check(
    history: History, sides: tuple[str, ...]
) -> None:
    never = Make.failed(label="never")
    good, bad = ({"assertions": (never, it)} for it in (Make.passed(), Make.failed()))
    record_run(history, "before", {"a": [good] * 5})
    record_run(history, "after", {"a": [good] * 2 + [bad] * 3})
    for side in sides:
        made = {"before": good, "after": bad}[side]
        record_run(history, f"more {side}", {"a": [made] * 5}, mode="settled", source_run=side)
    before = "10/10" if "before" in sides else "5/5"
    after = "2/10" if "after" in sides else "2/5"

    assert f"{before} → {after} with added repeats" in written(compared(history), "terminal")
    (test,) = json.loads(written(compared(history), "json"))["tests"]
    evidence = test["details"]["checks"][1]["evidence"]
    told = (f"{evidence[side]['passed']}/{evidence[side]['n']}" for side in ("before", "after"))
    assert tuple(told) == (before, after)


def test_a_file_does_not_advise_to_write_itself(history: History) -> None:
    for run in ("before", "after"):
        record_run(history, run, {"a": "+"})
    diff = compared(history)
    assert "Next  kindlm diff before after --format html" in written(diff, "terminal")
    assert "Next:" not in written(diff, "html")


def test_a_mean_that_only_rounding_changed_is_the_same(history: History) -> None:
    for run, repeats in (("before", 3), ("after", 7)):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=repeats)])
        for repeat in range(1, repeats + 1):
            writer.execution(repeat=repeat, cost_usd=0.1)
        writer.finish()
    (line,) = re.findall(r"^  cost .*$", written(compared(history), "terminal"), re.MULTILINE)
    assert line.split() == ["cost", "$0.10"]


def test_numbers_that_are_shown_alike_have_not_changed(history: History) -> None:
    good, bad = Make.passed(), Make.failed()
    for run, latency, cost, check in (
        ("before", 0.2, 0.00011, good),
        ("after", 0.4, 0.00014, bad),
    ):
        timed = {"latency_ms": latency, "cost_usd": cost, "assertions": (check,)}
        record_run(history, run, {"greets": [timed] * 2})
    text = written(compared(history), "terminal", verbose=True)
    assert re.findall(r"^ +(?:latency|cost) .*$", text, re.MULTILINE) == [
        "  latency    0 ms",
        "  cost       $0.0001",
    ]


def test_runs_of_which_nothing_can_be_compared_say_so(history: History) -> None:
    record_run(history, "before", {"a": "+"})
    record_run(history, "after", {"b": "+"}, suite="other")
    for form in get_args(DiffFormat):
        assert "NOTHING COMPARED" in written(compared(history), form)


def test_a_test_whose_suite_was_not_part_of_the_run_was_not_run(history: History) -> None:
    record_run(history, "before", {"a": "+"})
    record_run(history, "after", {"b": "+"}, suite="other")
    text = " ".join(written(compared(history), "terminal").split())
    assert "Suite support was not part of after." in text
    assert "a · gpt support passed 1/1 → not run" in text


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_weighted_scores_are_points_of_100_as_everywhere(
    history: History, form: DiffFormat
) -> None:
    def scored(score: float) -> list[dict[str, Any]]:
        checks = [("weighted_score", "weighted score", score), ("judge", "kind", score)]
        return [
            {"assertions": tuple(Make.passed(kind, label, score=to) for kind, label, to in checks)}
        ] * 3

    record_run(history, "before", {"a": scored(0.955)})
    record_run(history, "after", {"a": scored(0.5)})
    text = written(compared(history), form)
    assert "mean score 95.5 → 50" in text
    assert "(-45.5" in text
    assert "mean score 0.95 → 0.50" in text or "mean score 0.96 → 0.50" in text
