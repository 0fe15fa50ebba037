"""The compliance report: a document for each suite, from recorded events alone."""

from __future__ import annotations

import hashlib
import io
import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from jinja2 import TemplateError
from pages import HOSTILE

from kindlm.config.schema import GatesConfig
from kindlm.errors import Ok
from kindlm.events.codec import new_event
from kindlm.events.run import BaselineSet, ReviewRecorded
from kindlm.reports.compliance.rendering import (
    ARTICLES,
    TemplateFailedError,
    environ_of_templates,
    render,
    render_apart,
)
from kindlm.reports.compliance_report import SEPARATOR, _html, pdf_of
from kindlm.reports.report_registry import ReportOptions, find_report

METADATA = {"systemName": "Support Desk", "riskLevel": "limited", "operator": "ACME"}


def config(**compliance: Any) -> str:
    template = compliance.pop("text", None)
    document: dict[str, Any] = {"config": {"compliance": {"metadata": METADATA, **compliance}}}
    return json.dumps({**document, **({"reportTemplate": template} if template else {})})


def test_each_gate_of_an_article_is_one_that_a_suite_can_have() -> None:
    known = {field.alias for field in GatesConfig.model_fields.values()}
    assert {gate for article in ARTICLES for gate in article.gates} <= known


@pytest.fixture
def writer(history: Any) -> Any:
    return history.run("aaaa2222")


@pytest.fixture
def recorded(writer: Any, make: Any) -> Any:
    planned = [make.planned(repeat=2), make.planned("refunds"), make.planned("later", skip=True)]
    writer.suite(tests=planned, config=config(), gates={"judgeAvgMin": 0.8})
    for repeat in (1, 2):
        writer.execution(repeat=repeat, assertions=(make.passed("pii", "pii"),))
    writer.execution("refunds", assertions=(make.failed(),))
    writer.execution("later", status=make.SKIPPED)
    return writer.finish()


def written(view: Any, **options: Any) -> str:
    found = find_report("compliance")
    assert isinstance(found, Ok)
    out = io.StringIO()
    found.value.write(view, out, ReportOptions(**options))
    return out.getvalue()


def section(document: str, title: str) -> str:
    return re.split(r"(?m)^##+ ", document.partition(f" {title}\n")[2])[0]


def test_it_says_what_was_tested_and_how_it_came_out(recorded: Any) -> None:
    document = written(recorded)
    assert document.startswith("# Test evidence for Support Desk\n")
    assert "| Intended purpose | not stated |" in document
    assert re.search(r"\| Began, ended \| \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC,", document)
    assert "u200b" not in document
    assert "| Risk level | limited |" in document
    results = section(document, "Results")
    assert re.search(r"\| greets \| gpt \| PASS \| 2 of 2 \| 34.2 to 100.0 % \|", results)
    assert re.search(r"\| refunds \| gpt \| FAIL \| 0 of 1 \| 0.0 to 79.3 % \|", results)
    assert re.search(r"\| later \| gpt \| SKIP \| 0 of 0 \| not tested \|", results)
    assert "| passRateMin | FAIL | 0.6667 | 0.95 |" in results
    assert re.search(r"\| `pii` \| [^|]+ \| 2 \| 0 \| 0 \|", section(document, "Guardrails"))


def test_each_article_has_its_gates_and_what_is_not_shown(recorded: Any) -> None:
    document = written(recorded)
    found = [int(number) for number in re.findall(r"(?m)^### Article (\d+):", document)]
    assert found == [article.number for article in ARTICLES] == [9, 10, 11, 12, 13, 14, 15, 72]
    for article in ARTICLES:
        part = section(document, f"Article {article.number}: {article.title}")
        assert f"*{article.annex}.* {article.shown}\n" in part
        assert f"Not shown here: {article.not_shown}" in part
    assert "- FAIL passRateMin" in section(document, "Article 9: Risk management system")
    data = section(document, "Article 10: Data and data governance")
    assert "- PASS piiFailuresMax" in data
    # Nothing failed that nobody looked at.
    assert "- NOT MEASURED keywordFailuresMax: no check that it counts has run" in data


def test_the_hash_covers_all_above_the_line_and_stays(recorded: Any) -> None:
    document = written(recorded)
    content, _, below = document.rpartition(SEPARATOR)
    assert f"`{hashlib.sha256(content.encode()).hexdigest()}`" in below
    assert written(recorded) == document


def tamper(history: Any, statement: str) -> None:
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE type = 'trigger'")
        db.execute("PRAGMA writable_schema = RESET")
        db.execute(statement)


def test_the_audit_trail_names_the_head_and_reports_tampering(history: Any, recorded: Any) -> None:
    head = history.log.head("run/aaaa2222")
    document = written(recorded)
    assert f"`{head.hash}` | as recorded |" in section(document, "Audit trail")

    tamper(history, "UPDATE contents SET body = 'Hello?' WHERE body = 'Hello!'")

    changed = written(history.view("aaaa2222"))
    assert "NOT as recorded" in section(changed, "Audit trail")
    assert changed.startswith("**NOT AS RECORDED.**")


def test_a_run_whose_events_were_removed_makes_it_no_evidence(history: Any, recorded: Any) -> None:
    tamper(history, "DELETE FROM streams WHERE name = 'run/aaaa2222'")

    document = written(history.view(recorded.id))
    assert document.startswith("**NOT AS RECORDED.**")
    assert "there is no such stream" in document
    assert "- `kindlm history verify aaaa2222`" in document


@pytest.mark.parametrize("template", [None, "All is well."])
def test_tables_that_were_changed_make_it_no_evidence(
    history: Any, writer: Any, make: Any, template: str | None
) -> None:
    own = {} if template is None else {"framework": "custom", "template": "own.md"}
    text = {} if template is None else {"text": {"path": "own.md", "text": template}}
    writer.suite(tests=[make.planned()], config=config(**own, **text))
    writer.execution(assertions=(make.failed(),))
    before = written(writer.finish())
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE executions SET status = 'passed'")
    document = written(history.view("aaaa2222"))

    assert "NOT AS RECORDED" not in before
    assert document.startswith("**NOT AS RECORDED.**")
    assert "table executions is not what the events of run aaaa2222 say" in document
    # The warning is among what the hash covers.
    content, _, below = document.rpartition(SEPARATOR)
    assert hashlib.sha256(content.encode()).hexdigest() in below


def test_baseline_changes_and_reviews_are_reported(history: Any, recorded: Any, make: Any) -> None:
    later = history.run("bbbb3333")
    later.suite(tests=[make.planned()], config=config())
    later.execution(assertions=(make.failed(),))
    view = later.finish()
    history.log.append(
        "journal/j",
        [
            new_event(
                BaselineSet(project="shop", suite="support", run="aaaa2222", label="", by="ann@x")
            ),
            new_event(
                ReviewRecorded(
                    run="bbbb3333",
                    execution=1,
                    passed=True,
                    note="It *was* kind.",
                    by="bob@y",
                )
            ),
        ],
    )
    document = written(view)
    beside = section(document, "Compared with the baseline")
    assert "run `aaaa2222`, accepted by ann" in beside
    changes = section(document, "What changed between runs")
    assert re.findall(r"\| `(\w+)` \|", changes) == ["bbbb3333", "aaaa2222"]
    # Each heading stands apart from what is above it.
    assert not re.search(r"[^\n]\n#", document)
    said = section(document, "Human reviews")
    assert "**pass** by bob" in said
    assert "It &#42;was&#42; kind." in said


def test_tests_that_were_not_selected_are_counted(history: Any, writer: Any, make: Any) -> None:
    others = [make.planned("refunds", selected=False), make.planned("later", selected=False)]
    writer.suite(tests=[make.planned(), *others], config=config())
    writer.execution(assertions=(make.passed(),))
    document = written(writer.finish())
    assert "PASSED: 1 test passed**\n\n- Not selected for this run" in document
    assert "not shown here: 2 tests of the suite." in document


def test_an_accepted_run_that_was_changed_is_not_compared_with(
    history: Any, recorded: Any, make: Any
) -> None:
    accepted = BaselineSet(project="shop", suite="support", run=recorded.id, label="", by="ann")
    history.log.append("journal/j", [new_event(accepted)])
    later = history.run("bbbb3333")
    later.suite(tests=[make.planned()], config=config())
    later.execution(assertions=(make.failed(),))
    view = later.finish()
    assert "REGRESSED" in section(written(view), "Compared with the baseline")
    tamper(
        history,
        "UPDATE events SET subject = subject || '0' WHERE version = 6"
        " AND stream = (SELECT id FROM streams WHERE name = 'run/aaaa2222')",
    )
    beside = section(written(history.view("bbbb3333")), "Compared with the baseline")
    assert "**NOT COMPARED**" in beside
    assert "was changed after it was recorded" in beside


def test_what_people_said_is_verified_too(history: Any, recorded: Any) -> None:
    said = ReviewRecorded(run=recorded.id, execution=1, passed=False, note="No.", by="bob")
    history.log.append("journal/j", [new_event(said)])
    assert "NOT AS RECORDED" not in written(history.view(recorded.id))
    tamper(history, "UPDATE events SET data = replace(data, 'bob', 'ann') WHERE data GLOB '*bob*'")
    document = written(history.view(recorded.id))
    assert document.startswith("**NOT AS RECORDED.**")
    assert "journal/j: the event does not match its hash" in document


@pytest.mark.parametrize(("threshold", "verdict"), [(0.1, "REGRESSED"), (0.5, "UNCHANGED")])
def test_it_stands_beside_the_accepted_run_by_the_threshold_of_the_project(
    history: Any, make: Any, threshold: float, verdict: str
) -> None:
    for run, score in (("aaaa2222", 0.95), ("bbbb3333", 0.75)):
        writer = history.run(run)
        writer.suite(tests=[make.planned(repeat=12)], config=config())
        for repeat in range(1, 13):
            check = make.passed("judge", "is kind", score=score, threshold=0.5)
            writer.execution(repeat=repeat, assertions=(check,))
        view = writer.finish()
    accepted = BaselineSet(project="shop", suite="support", run="aaaa2222", label="", by="ann@x")
    history.log.append("journal/j", [new_event(accepted)])
    document = written(view, regression_threshold=threshold)
    assert verdict in section(document, "Compared with the baseline")


def test_what_agents_and_users_wrote_is_text(history: Any, make: Any) -> None:
    writer = history.run("cccc4444", label=HOSTILE)
    hostile = f"{HOSTILE} | [x](http://evil) ![y](http://evil) `z` {{{{ 7001 * 7003 }}}}\n# Head"
    metadata = {"systemName": hostile, "operator": hostile}
    writer.suite(hostile, tests=[make.planned(hostile, hostile)], config=config(metadata=metadata))
    writer.execution(hostile, hostile, assertions=(make.failed(label=hostile, message=hostile),))
    # What stands as code is shown as it is.
    document = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", written(writer.finish()))
    assert "<script" not in document
    assert "](http" not in document
    assert "49028003" not in document
    assert not re.search(r"(?m)^# Head", document)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", document)
    for row in section(document, "Results").splitlines():
        if row.startswith("| ") and "alert" in row:
            assert row.count("|") == 7


def test_a_template_of_the_user_says_what_it_wants(writer: Any, make: Any) -> None:
    text = "# Mine\n{% for test in tests %}\n- {{ test.name }} {{ test.passed }}\n{% endfor %}\n"
    writer.suite(tests=[make.planned("*bold*")], config=config(framework="custom", text=text))
    writer.execution("*bold*", assertions=(make.passed(),))
    document = written(writer.finish())
    assert document.startswith("# Mine\n- &#42;bold&#42; 1\n")
    assert "Article" not in document


def test_hashes_and_times_can_be_copied_from_a_template(
    history: Any, writer: Any, make: Any
) -> None:
    text = "{{ audit[0].head }} {{ run.started }} {{ run.id }}:{{ run.id }}\n"
    writer.suite(tests=[make.planned()], config=config(framework="custom", text=text))
    writer.execution(assertions=(make.passed(),))
    view = writer.finish()
    head = history.log.head("run/aaaa2222").hash
    assert written(view).startswith(f"{head} {view.info.started_at} aaaa2222:aaaa2222\n")


@pytest.mark.parametrize(
    "text",
    [
        "{{ run.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ nothing }}",
        "{{ 1 / 0 }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_reaches_nothing_but_the_facts(text: str) -> None:
    with pytest.raises((TemplateError, TypeError, ZeroDivisionError)):
        render(text, FACTS)


def test_the_pdf_is_the_same_each_time() -> None:
    document = "# Title\n\n| a | b |\n|---|---|\n| [x](http://example.org/) | `x` **y** |\n"
    first, second = (pdf_of(document, "2026-01-31T12:00:00.000000Z") for _ in range(2))
    assert isinstance(first, Ok)
    assert isinstance(second, Ok)
    assert first.value.startswith(b"%PDF-")
    assert first.value == second.value


FACTS: dict[str, Any] = {
    "gates": [],
    "run": {"id": "aaaa2222", "label": None, "mode": "live", "branch": "main"},
    "name": "[x](http://evil) @ann\n# Head",
}
COUNTS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        ("{{ 10 ** (10 ** 9) }}", "1 s of processor time"),
        ("{{ 'x' * 10 ** 9 }}", "256 MiB of memory"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ],
)
def test_a_template_takes_no_more_than_it_may(template: str, limit: str) -> None:
    with pytest.raises(TemplateFailedError, match=limit):
        render_apart(template, FACTS, cpu_s=1, memory_mib=256)


def test_the_reason_of_a_template_that_fails_has_a_bound() -> None:
    with pytest.raises(TemplateFailedError) as failed:
        render_apart("{{ run['x' * 10 ** 6].y }}", FACTS)
    assert len(str(failed.value)) <= 1_000


def test_a_template_that_never_ends_is_ended() -> None:
    with pytest.raises(TemplateFailedError, match=r"0\.01 s in all"):
        render_apart(COUNTS, FACTS, deadline_s=0.01)


def test_a_template_sees_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a template would that found a way out of the sandbox.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    assert "OPENAI_API_KEY" not in environ_of_templates()


def test_a_template_says_the_same_each_time() -> None:
    facts = {**FACTS, "run": {f"key {number}": number for number in range(20)}}
    first, second = (render_apart("{{ run.keys() - [] }}", facts) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("expression", ["run.items", "joiner()", "run.keys() | random", "lipsum()"])
def test_what_is_another_each_time_is_refused(expression: str) -> None:
    with pytest.raises((TypeError, TemplateError)):
        render(f"{{{{ {expression} }}}}", FACTS)


@pytest.mark.parametrize(
    "expression",
    [
        "name",
        "name | forceescape",
        "(run.id | code) ~ name",
        "[run.id | code, name] | join",
        "name | replace('y', run.id | code)",
    ],
)
def test_what_others_wrote_is_text_in_every_expression(expression: str) -> None:
    document = render(f"{{{{ {expression} }}}}", FACTS)
    assert "](" not in document
    assert "@a" not in document
    assert "\n" not in document


@pytest.mark.parametrize("name", ["tojson", "urlize", "xmlattr"])
def test_filters_that_are_safe_in_html_alone_are_refused(name: str) -> None:
    with pytest.raises(TemplateError, match=name):
        render(f"{{{{ run | {name} }}}}", FACTS)


def test_a_template_that_fails_is_named_with_its_limit(writer: Any, make: Any) -> None:
    failing = config(framework="custom", template="reports/mine.md", text="{{ 'x' * 10 ** 10 }}")
    writer.suite(tests=[make.planned()], config=failing)
    writer.execution(assertions=(make.passed(),))
    document = written(writer.finish())
    assert document.startswith("# The report could not be written\n")
    assert (
        "Its template `reports/mine.md` failed: it takes more than 10 s of processor time, 60 s in"
        " all or 512 MiB of memory." in document
    )


def test_the_reason_of_a_template_that_fails_is_one_sentence(writer: Any, make: Any) -> None:
    failing = config(framework="custom", template="mine.md", text="{{ run | tojson }}")
    writer.suite(tests=[make.planned()], config=failing)
    writer.execution(assertions=(make.passed(),))
    assert re.search(r"No filter named .*tojson[^.]*\.\n", written(writer.finish()))


@pytest.mark.parametrize(
    "recorded_config",
    [
        '{"config": {"compliance": {"metadata": ["x"], "framework": ["y"]}}}',
        '{"config": {"compliance": {"metadata": {"systemName": [{}], "operator": 7.5}}}}',
        '{"config": {"compliance": {"metadata": {"riskLevel": "\\ud800", "systemName": false}}}}',
        '{"config": {"compliance": {"framework": "custom"}}, "reportTemplate": 7}',
        '["no", "object"]',
        "no JSON",
    ],
)
def test_a_configuration_of_any_origin_is_read(
    writer: Any, make: Any, recorded_config: str
) -> None:
    writer.suite(tests=[make.planned()], config=recorded_config)
    writer.execution(assertions=(make.passed(),))
    assert written(writer.finish()).startswith("# Test evidence for ")


def test_a_text_with_a_bar_stays_in_its_cell() -> None:
    facts = {**FACTS, "name": "`x|y` <b>"}
    row = render("|a|b|\n|---|---|\n|{{ name | code }}|{{ run.id | code }}|\n", facts)
    assert ">`x|y` &lt;b&gt;</td>" in _html(row)


@pytest.mark.parametrize(
    "markdown",
    [
        "|" + " a |" * 40 + "\n|" + "---|" * 40 + "\n|" + f" {'W' * 50} |" * 40,
        f"| a | b |\n|---|---|\n| {'x ' * 4_000} | y |",
        "![x](/etc/passwd) ![x](http://192.0.2.1/x.png) <img src='/etc/passwd'>"
        "\n\n"
        + "x" * 5_000
        + "\n\n\u05e9\u05dc\u05d5\u05dd \u202e \U0001f600 \x07 \ud800 \ufdfd\n\n"
        + "> " * 200
        + "x",
        "",
    ],
    ids=["wide", "high", "images, letters, long and deep", "empty"],
)
def test_a_pdf_is_made_of_any_document(markdown: str, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(pdf_of(markdown, "2026-01-31T12:00:00.000000Z"), Ok)
    assert not caplog.records
