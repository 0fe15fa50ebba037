"""The Markdown report: what stands in it, in a size that a comment holds, whatever models wrote."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from compared_runs import record_run
from markdown_it import MarkdownIt
from recorded_history import History, Make

from kindlm.events.codec import new_event
from kindlm.events.run import BaselineSet
from kindlm.reports import markdown_report
from kindlm.reports.untrusted import cell, plain

COMMENT = 65_536
HOSTILE = (
    "</code></details></summary><script>alert(1)</script> | `x` ``` @everyone #1 "
    "[link](http://evil) <img src=x onerror=alert(2)> ![i](http://evil/i.png) \x1b[31mred\x07 "
    "\u202e&amp; <!-- \n```\n# head\n::error::x\n"
)


def tags_of(text: str) -> set[str]:
    """Return what is taken for markup; all HTML in it is whole, and of a few kinds."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    tags = {token.tag for token in tokens}
    inside = [child for token in tokens for child in token.children or ()]
    tags |= {child.tag for child in inside}
    pieces = [t.content for t in (*tokens, *inside) if t.type in ("html_block", "html_inline")]
    for piece in pieces:
        unknown = re.sub("</?(details|summary|code)>", "", piece)
        assert "<" not in unknown, piece
    for tag in ("details", "summary", "code"):
        assert "".join(pieces).count(f"<{tag}>") == "".join(pieces).count(f"</{tag}>")
    return tags


def test_a_run_is_reported_from_its_verdict_to_its_tests(varied: Any, write: Any) -> None:
    text = write(varied, "markdown", database="kindlm.db")

    lines = text.splitlines()
    assert lines[0] == "### ❌ kindlm: FAILED"
    assert lines[2].startswith("2 tests failed, 1 test errored, 1 suite could not be run, gate ")
    assert "Run `k3f9x2ab` (`nightly · 2" in text
    assert "`broken` (`broken.yaml`) could not be run: `Unknown key `" not in text
    assert "could not be run: ``Unknown key `tset`.``" in text
    assert "<summary>6 gates, 3 failed</summary>" in text
    assert "| ❌ | `support` | passRateMin | 0.38 &lt; 0.95 |" in text
    whom = "<code>refunds · gpt, 3 of 3 repeats</code>"
    assert f"<summary>❌ <code>No call to refund&#95;order</code> · {whom}</summary>" in text
    assert "- called: `lookup_order" in text
    assert "- at: `kindlm.yaml:57`" in text
    assert "`kindlm show k3f9x2ab 5`" in text
    assert "<summary>Each test on each target</summary>" in text
    assert "| ❌ | `greets` · `claude` | 1/2 flaky |" in text
    assert "| ⏭️ | `later` · `gpt` | skipped |" in text
    assert text.endswith("Next: `kindlm validate broken.yaml`\n")
    assert text.count("<details>") == text.count("</details>")


def test_what_changed_since_the_run_before_stands_in_it(history: History, write: Any) -> None:
    good, bad = {"assertions": (Make.passed(),)}, {"assertions": (Make.failed(),)}
    record_run(history, "before", {"greets": [good] * 3, "refunds": [good] * 3})
    record_run(history, "after", {"greets": [good] * 3, "refunds": [bad] * 3})

    first = write(history.view("before"), "markdown")
    assert first.startswith("### ✅ kindlm: PASSED")
    assert "Since run" not in first
    second = write(history.view("after"), "markdown")
    assert "#### Since run `before`: ❌ REGRESSED" in second
    assert "| ✗ | `refunds` · `gpt` | passed 3/3 → failed 0/3 | regressed" in second
    assert "In full: `kindlm diff before after`" in second
    assert "`greets` · `gpt` | passed 3/3 |" not in second.partition("<details>")[0]
    record_run(history, "again", {"greets": [good] * 3, "refunds": [bad] * 3})
    assert "#### Since run `after`: UNCHANGED" in write(history.view("again"), "markdown")


def test_a_baseline_that_cannot_be_compared_with_is_told_in_every_report(
    history: History, write: Any
) -> None:
    bad = {"assertions": (Make.failed(),)}
    for run in ("before", "after"):
        record_run(history, run, {"greets": [bad] * 3})
    chosen = BaselineSet(project="shop", suite="support", run="gone", label=None, by="me")
    history.log.append("journal/b", [new_event(chosen)])
    view = history.view("after")

    told = "The baseline, run gone, is not in this history."
    text = write(view, "markdown")
    assert told in text
    assert "UNCHANGED" not in text
    terminal = write(view, "terminal")
    assert f"Not compared: {told}" in " ".join(terminal.split())
    assert "compare with: a run, or previous." in " ".join(terminal.split())
    assert "Compare:" not in terminal
    assert f"Not compared: {told}" in write(view, "html")


def test_an_unknown_cost_is_said_to_be_unknown(history: History, write: Any) -> None:
    run = history.run("two")
    run.suite(tests=[Make.planned()])
    run.execution(assertions=(Make.passed(),), cost_usd=None)
    assert " · cost unknown · " in write(run.finish(), "markdown")


def test_the_threshold_of_the_project_is_that_of_the_comparison(
    history: History, write: Any
) -> None:
    def judged(score: float) -> list[dict[str, Any]]:
        check = Make.passed("judge", "is kind", score=score, threshold=0.5)
        return [{"assertions": (check,)}] * 12

    record_run(history, "before", {"greets": judged(0.95)})
    record_run(history, "after", {"greets": judged(0.75)})
    view = history.view("after")
    assert "❌ REGRESSED" in write(view, "markdown", regression_threshold=0.1)
    assert "REGRESSED" not in write(view, "markdown", regression_threshold=0.5)


def test_nothing_that_was_written_is_taken_for_markup(history: History, write: Any) -> None:
    def run(name: str, check: Any) -> None:
        text = f"{HOSTILE}{name}"
        execution = {"output": text, "tools": ((HOSTILE, {HOSTILE: text}, {}),)}
        record_run(history, name, {HOSTILE: [{**execution, "assertions": (check,)}] * 3})

    run("before", Make.passed("contains", HOSTILE))
    run("after", Make.failed("contains", HOSTILE, message=HOSTILE, actual=HOSTILE))
    history.label("after", "x")
    hostile = history.run("gates")
    hostile.suite(tests=[Make.planned()], gates={HOSTILE: 1.0})
    hostile.execution(error=(HOSTILE, 1, HOSTILE, None))
    text = write(history.view("after"), "markdown") + write(hostile.finish(), "markdown")

    assert tags_of(text) <= {
        "", "h3", "h4", "p", "code", "ul", "li", "table", "thead", "tbody", "tr", "th", "td",
        "blockquote", "br",
    }  # fmt: skip
    assert not set(text) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize(
    "text",
    ["@all", "see #12", "http://evil.example", "WWW.evil.example", ":boom:", "a@b.example", "*x*"],
)
def test_nothing_in_a_sentence_is_a_mention_a_link_or_an_emoji(text: str) -> None:
    rendered = html.unescape(MarkdownIt("commonmark").render(plain(text)))
    # GitHub looks for them in the text that was rendered.
    assert not re.search(r"[@#:]\w|://|www\.|<em>", rendered, re.IGNORECASE)
    assert rendered.replace("\u200b", "") == f"<p>{text}</p>\n"


@pytest.mark.parametrize("text", ["a|b", "a\\|b", "|", "\\\\| `x", "`|` @all"])
def test_no_bar_ends_the_cell_of_a_table(text: str) -> None:
    assert "|" not in cell(text)
    rendered = MarkdownIt("commonmark").enable("table").render(f"| x |\n|---|\n| {cell(text)} |\n")
    shown = html.unescape(rendered).replace("\u200b", "")
    assert shown.count(f"<code>{text}</code>") == 1


def test_a_large_run_fits_into_a_comment_and_says_what_is_left_out(
    history: History, write: Any
) -> None:
    tests = 60
    run = history.run("big")
    run.suite("🦆" * 300, tests=[Make.planned(f"{i} {'🦆' * 300}") for i in range(tests)])
    for i in range(tests):
        failed = [
            Make.failed(label=f"{j} {'<' * 300}", message="`" * 5_000, actual="@" * 5_000)
            for j in range(10)
        ]
        run.execution(f"{i} {'🦆' * 300}", output="x" * 9_000, assertions=tuple(failed))
    text = write(run.finish(), "markdown")

    assert len(text.encode("utf-16-le")) / 2 < COMMENT
    assert len(text.encode()) < COMMENT
    assert "… cut to fit into a comment: `kindlm show big` shows the rest." in text
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("Next: `kindlm show big 1`\n")


def test_it_says_that_some_failing_tests_are_not_among_the_causes(
    history: History, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_run(history, "aaaa2222", {"greets": "-", "refunds": "-"})
    told = "The causes are those of the first"
    assert told not in write(history.view("aaaa2222"), "markdown")
    monkeypatch.setattr(markdown_report, "_EXPLAINED", 1)
    assert f"{told} 1 tests that did not pass." in write(history.view("aaaa2222"), "markdown")


def test_a_failure_that_the_pass_rate_allows_is_reported(history: History, write: Any) -> None:
    run = history.run()
    run.suite(tests=[Make.planned("shaky", repeat=2, pass_rate=0.5), Make.planned("broken")])
    run.execution("shaky", repeat=1, assertions=(Make.passed(),))
    run.execution("shaky", repeat=2, assertions=(Make.failed(),))
    run.execution("broken", assertions=(Make.failed(label="other"),))
    text = write(run.finish(), "markdown")
    assert "<code>broken · gpt</code>" in text
    assert "<code>shaky · gpt, 1 of 2 repeats</code>" in text


def test_a_run_that_was_cut_off_has_passed_nothing_and_is_not_unchanged(
    history: History, write: Any
) -> None:
    plan = [Make.planned("greets", repeat=4)]
    for run in ("aaaa1111", "bbbb2222"):
        writer = history.run(run, planned=4)
        writer.suite(tests=plan)
        for repeat in range(1, 5 if run == "aaaa1111" else 3):
            writer.execution("greets", repeat=repeat, assertions=(Make.passed(),))
        view = writer.finish() if run == "aaaa1111" else writer.leave()
    text = write(view, "markdown")
    assert "❌ INCOMPLETE" in text
    assert re.search(r"\| ⏳ \| `support` \| passRateMin \| [^|]+ so far \|", text)
