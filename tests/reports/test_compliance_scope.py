"""What a compliance document counts and shows: its own suite, all of it, nobody's data."""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.events.codec import new_event
from kindlm.events.run import BaselineSet
from kindlm.history.groups import Group
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.reports.compliance_report import content_of
from kindlm.reports.report_registry import ReportOptions, find_report

TESTS = "abcdefghijkl"
ADDRESS = "ann@example.org"


def documents(view: RunView) -> dict[str, str]:
    options = ReportOptions()
    return {each.name: content_of(view, each, options).text for each in view.suites}


def written(view: RunView) -> str:
    found = find_report("compliance")
    assert isinstance(found, Ok)
    out = io.StringIO()
    found.value.write(view, out, ReportOptions())
    return out.getvalue()


def section(document: str, title: str) -> str:
    return re.split(r"(?m)^##+ ", document.partition(f" {title}\n")[2])[0]


def config(**metadata: Any) -> str:
    return json.dumps({"config": {"compliance": {"metadata": metadata}}})


def accept(history: Any, run: str, *suites: str) -> None:
    for suite in suites:
        accepted = BaselineSet(project="shop", suite=suite, run=run, label="", by="me")
        history.log.append("journal/j", [new_event(accepted)])


def record_two(history: Any, make: Any, run: str, *, second_passes: bool) -> RunView:
    writer = history.run(run)
    for name in ("first", "second"):
        writer.suite(name, tests=[make.planned(test, repeat=2) for test in TESTS])
    for suite in (0, 1):
        check = make.passed() if second_passes or suite == 0 else make.failed()
        for test in TESTS:
            for repeat in (1, 2):
                writer.execution(test, suite=suite, repeat=repeat, assertions=(check,), judge="0.5")
    view: RunView = writer.finish()
    return view


def test_every_figure_is_of_the_suite_alone(history: Any, make: Any) -> None:
    record_two(history, make, "aaaa2222", second_passes=True)
    accept(history, "aaaa2222", "first", "second")
    view = record_two(history, make, "bbbb3333", second_passes=False)
    history.review("bbbb3333", 25, passed=True)
    first, second = documents(history.view(view.id)).values()

    assert "Verdict of suite first in run `bbbb3333`: **PASSED: 12 tests passed**" in first
    assert "which as a whole is FAILED" in first
    totals = section(first, "Results")
    assert "- tests: 12: 12 passed\n" in totals
    assert "- executions: 24: 24 passed\n" in totals
    assert "- tokens: 480 in, 240 out\n" in totals
    assert "- cost: $0.0720" in totals
    assert "reviewed" not in totals
    assert "0 conversations reviewed" in first
    assert "**UNCHANGED**; 12 as before" in section(first, "Compared with the baseline")
    assert "| PASSED |" in section(first, "What changed between runs")
    assert "FAILED" not in section(first, "What changed between runs")

    assert "**FAILED: 12 tests failed, gate passRateMin" in second
    assert "1 conversation reviewed by people, 1 of the verdicts disputed" in second
    beside = section(second, "Compared with the baseline")
    assert "**REGRESSED**" in beside
    whole = "the suite as a whole passes less often, by 100 points on average over 12 tests"
    assert whole in beside
    changes = section(second, "What changed between runs")
    assert re.findall(r"\| (PASSED|FAILED) \|", changes) == ["FAILED", "PASSED"]


def test_a_suite_that_came_to_its_end_passed_where_the_run_did_not(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222", planned=3)
    writer.suite("first", tests=[make.planned()])
    writer.suite("second", tests=[make.planned(repeat=2)])
    writer.execution(suite=0, assertions=(make.passed(),))
    writer.execution(suite=1, assertions=(make.passed(),))
    first, second = documents(writer.interrupt()).values()
    assert "**PASSED: 1 test passed**" in first
    assert "which as a whole is INTERRUPTED" in first
    assert "- executions: 1: 1 passed\n" in first
    assert "**INTERRUPTED: SIGINT, 1 of 2 executions did not finish**" in second
    assert "- executions: 2: 1 passed, 1 not run\n" in second


def test_repeats_are_those_of_the_plan_where_a_run_was_cut_off(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222", planned=8)
    writer.suite(tests=[make.planned(test, repeat=4) for test in "ab"])
    for repeat in (1, 2):
        writer.execution("a", repeat=repeat, assertions=(make.passed(),))
    assert "| Repeats of each test | 4 |" in written(writer.leave())


def test_notes_of_people_repeat_no_personal_data(history: Any, make: Any) -> None:
    output = f"Write to {ADDRESS}."
    at = output.index(ADDRESS)
    found = {
        "source": "output",
        "start": at,
        "end": at + len(ADDRESS),
        "excerpt": "a***@***g",
    }
    leak = make.failed("pii", "pii", "PII_DETECTED", "1 email.", evidence=[found])
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(output=output, assertions=(leak,))
    writer.finish()
    history.review("aaaa2222", 1, passed=False, note=f"It tells {ADDRESS} to everyone.")
    said = section(written(history.view("aaaa2222")), "Human reviews")
    assert ADDRESS not in said.replace("\u200b", "")
    assert "to everyone." in said

    # Without the text, nobody knows any more what of a note must not be shown.
    history.erase("run/aaaa2222")
    said = section(written(history.view("aaaa2222")), "Human reviews")
    assert "example" not in said
    assert "not shown: it may repeat personal data" in said
    history.erase("journal/j")
    assert "&#91;erased&#93;" in section(written(history.view("aaaa2222")), "Human reviews")


@pytest.mark.parametrize(
    ("kind", "is_guardrail"),
    [
        ("pii", True),
        ("keywords_deny", True),
        ("keywords_allow", True),
        ("not_contains", True),
        ("tool_not_called", True),
        ("tool_strict", True),
        ("schema", True),
        ("forbidden_tool", True),
        ("no_pii", True),
        ("safety", True),
        ("hallucination", True),
        ("contains", False),
        ("judge", False),
    ],
)
def test_guardrails_are_the_checks_of_what_must_not_be(
    history: Any, make: Any, kind: str, is_guardrail: bool
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    advice = make.failed(kind, kind, advisory=True)
    writer.execution(assertions=(make.passed(kind, kind), advice))
    guardrails = section(written(writer.finish()), "Guardrails")
    # What only advises counts nowhere.
    told = re.search(rf"\| `{kind}` \| [^|]+ \| 1 \| 0 \| 0 \|", guardrails)
    assert (told is not None) is is_guardrail


def test_the_oldest_run_that_is_listed_says_what_changed(history: Any, make: Any) -> None:
    for number in range(12):
        writer = history.run(f"aaaa22{number:02}")
        # Another configuration each time.
        writer.suite(tests=[make.planned()], config_hash=f"{number:012}")
        writer.execution(assertions=(make.passed(),))
        view = writer.finish()
    document = written(view)
    changes = section(document, "What changed between runs")
    rows = [row for row in changes.splitlines() if row.startswith("| `")]
    assert [row.split("|")[1].strip() for row in rows] == [
        f"`aaaa22{number:02}`" for number in range(11, 1, -1)
    ]
    assert all("| configuration, perhaps code" in row for row in rows)
    assert "2 older runs are recorded, and not listed." in changes
    assert "- 12 finished runs of this suite" in document
    first = written(history.view("aaaa2200"))
    assert "the first recorded run" in section(first, "What changed between runs")
    assert "not listed" not in first


def test_reviews_beyond_those_that_are_listed_are_counted(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(assertions=(make.passed(),))
    writer.finish()
    for number in range(201):
        history.review("aaaa2222", 1, passed=True, by=f"person{number}")
    said = section(written(history.view("aaaa2222")), "Human reviews")
    assert said.count("**pass** by") == 200
    assert "1 later review is recorded, and not listed." in said


def record_shard(history: Any, make: Any, run: str, shard: str) -> RunView:
    writer = history.run(run, shard=shard, group="gh/12")
    tests = [make.planned(name, selected=name == shard) for name in ("1/2", "2/2")]
    writer.suite(tests=tests)
    writer.execution(shard, assertions=(make.passed(),))
    view: RunView = writer.finish()
    return view


def test_a_shard_says_that_it_is_a_part(history: Any, make: Any) -> None:
    document = written(record_shard(history, make, "aaaa2222", "1/2"))
    assert "- Shard 1/2 of group gh/12; shard 2/2 is not here.\n" in document
    assert "- This report covers only what this shard ran.\n" in document


def test_each_run_of_a_group_is_verified_by_a_command_of_its_own(history: Any, make: Any) -> None:
    for index in (1, 2):
        record_shard(history, make, f"{index}aaa2222", f"{index}/2")
    found = find_run_or_group(history.reader(), "gh/12")
    assert isinstance(found, Ok)
    assert isinstance(found.value, Group)
    document = written(RunView(history.reader(), found.value))
    trail = section(document, "Audit trail")
    for run in ("1aaa2222", "2aaa2222"):
        head = history.log.head(f"run/{run}").hash
        assert f"`kindlm history verify {run} --head {head}`" in trail
    assert "verify gh/12" not in document
    assert "- Group gh/12, shown as one run, of the runs 1aaa2222, 2aaa2222." in document
    assert "- 2 of 2 shards." in document
    changes = section(document, "What changed between runs")
    assert "`2aaa2222`, shard 2/2 of gh/12" in changes


def test_metadata_is_shown_whole(history: Any, make: Any) -> None:
    purpose = "Answers " + "questions " * 400 + "to the end"
    notes = "Nothing is kept.\n  Nothing is sold.\n"
    writer = history.run("aaaa2222")
    stated = config(intendedPurpose=purpose, dataGovernanceNotes=notes, operator="  ")
    writer.suite(tests=[make.planned()], config=stated)
    writer.execution(assertions=(make.passed(),))
    system = section(written(writer.finish()), "The system")
    assert f"| Intended purpose | {purpose} |" in system
    assert "| Data governance | Nothing is kept. Nothing is sold. |" in system
    assert "| Operator | not stated |" in system


def test_of_a_run_that_did_not_end_nothing_has_passed_yet(history: Any, make: Any) -> None:
    run = history.run("aaaa2222", planned=45)
    planned = [make.planned(name, repeat=repeat) for name, repeat in (("slow", 40), ("whole", 1))]
    run.suite("first", tests=[*planned, make.planned("never", repeat=3)])
    run.suite("second", tests=[make.planned("done")])
    for repeat in range(1, 17):
        run.execution("slow", repeat=repeat, assertions=(make.passed(),))
    run.execution("slow", repeat=17, finished=False, output=None)
    run.execution("whole", assertions=(make.passed(),))
    run.execution("done", suite=1, assertions=(make.passed(),))
    first, second = documents(run.leave()).values()

    results = section(first, "Results")
    assert "| slow | gpt | PASS SO FAR | 16 of 16, 24 more planned |" in results
    assert "| whole | gpt | PASS | 1 of 1 |" in results
    assert "| never | gpt | NOT RUN | 0 of 0, 3 more planned |" in results
    assert "| passRateMin | PASS SO FAR |" in results
    risk = section(first, "Article 9: Risk management system")
    assert "- PASS SO FAR passRateMin" in risk
    # The other suite has come to its end.
    assert "SO FAR" not in second


def test_what_was_erased_of_the_configuration_is_not_said_to_be_unstated(
    history: Any, make: Any
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()], config=config(systemName="Order Desk"))
    writer.execution(assertions=(make.passed(),))
    writer.finish()
    history.erase("run/aaaa2222")
    document = written(history.view("aaaa2222"))
    assert document.startswith("# Test evidence for support\n")
    assert "| Name | erased |" in section(document, "The system")
    assert "not stated" not in section(document, "The system")
    assert "The content of the configuration was erased" in document


def test_conversations_of_another_run_are_in_the_audit_trail(history: Any, make: Any) -> None:
    held = history.run("aaaa2222")
    held.suite(tests=[make.planned()])
    source = held.execution(assertions=(make.passed(),), judge="0.5")
    held.finish()
    checked = history.run("bbbb3333", mode="rescored", source_run="aaaa2222")
    checked.suite(tests=[make.planned()])
    checked.execution(source=f"{source}.1", output=None, assertions=(make.passed(),))
    document = written(checked.finish())
    assert "| Run | `bbbb3333`, rescored from `aaaa2222` |" in document
    assert "The conversations are those of the source run." in document
    trail = section(document, "Audit trail")
    assert re.search(r"\| `bbbb3333` \| \d+ \| `sha256:\w+` \| as recorded \|", trail)
    assert "| `aaaa2222`, which recorded the conversations |" in trail
    assert "kindlm history verify aaaa2222 --head sha256:" in trail
    # The judge of then was not asked by this run.
    assert "| judge |" not in section(document, "What was tested, and how")


def test_numbers_of_gates_are_written_as_they_are(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()], gates={"latencyMaxMs": 20_000})
    writer.execution(assertions=(make.failed("schema", "schema"),), latency_ms=12_345.5)
    results = section(written(writer.finish()), "Results")
    assert "| schemaFailuresMax | FAIL | 1 | 0 |" in results
    assert "| latencyMaxMs | PASS | 12345.5 | 20000 |" in results
    assert "| `schema` | 1 | 1 | 0 |" in results


def test_a_file_of_several_documents_has_one_hash(history: Any, make: Any) -> None:
    text = written(record_two(history, make, "aaaa2222", second_passes=True))
    assert text.count("# Test evidence for ") == 2
    content, _, below = text.rpartition("---\n")
    assert f"`{hashlib.sha256(content.encode()).hexdigest()}`" in below
    assert "SHA-256" not in content
