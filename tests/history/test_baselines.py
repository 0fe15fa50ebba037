"""Which run is a baseline, whether it can be used, and what its tests said."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.events.codec import new_event
from kindlm.events.run import BaselineRemoved, BaselineSet
from kindlm.history.baselines import (
    BaselineChecks,
    RecordedBaselines,
    find_baseline,
    list_baselines,
    output_of,
)
from kindlm.plan import QualifiedName
from kindlm_store import Append, HeadOf
from kindlm_store.verification import Verification, verify_file

SUITE = ("shop", "support")
TEST = QualifiedName("shop", "support", "greets", "gpt")


def set_baseline(history: Any, run: str, suite: str = "support", **fields: Any) -> None:
    payload = BaselineSet(**{"project": "shop", "suite": suite, "run": run, "by": "me"} | fields)
    history.log.append("journal/b", [new_event(payload)])


def remove_baseline(history: Any, suite: str = "support", **fields: Any) -> None:
    payload = BaselineRemoved(**{"project": "shop", "suite": suite, "by": "me"} | fields)
    history.log.append("journal/b", [new_event(payload)])


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """A history with one finished run of the suite `support`."""
    writer = history.run("run1")
    writer.suite(tests=[make.planned()])
    writer.execution(output="Hi there.", assertions=(make.passed(),))
    writer.finish()
    return history


def lookup(history: Any) -> RecordedBaselines:
    return RecordedBaselines(history.reader())


def code_of(found: Any) -> ErrorCode:
    assert isinstance(found, Err)
    assert found.error.hint
    return found.error.code


class TestWhichRun:
    def test_none_was_set(self, recorded: Any) -> None:
        assert lookup(recorded).run("shop", "support") == Ok(None)

    def test_the_one_that_was_set(self, recorded: Any) -> None:
        set_baseline(recorded, "run1")

        assert lookup(recorded).run("shop", "support") == Ok("run1")
        assert lookup(recorded).run("shop", "another suite") == Ok(None)
        assert lookup(recorded).run("another project", "support") == Ok(None)
        with closing(recorded.log.reader()) as db:
            assert find_baseline(db, "shop", "support") is not None
            assert find_baseline(db, "another project", "support") is None

    def test_the_one_that_was_set_last_whatever_its_label(self, recorded: Any) -> None:
        set_baseline(recorded, "other")
        set_baseline(recorded, "run1", label="release")

        assert lookup(recorded).run("shop", "support") == Ok("run1")
        with closing(recorded.log.reader()) as db:
            assert [(b.label, b.run, b.active) for b in list_baselines(db)] == [
                ("release", "run1", True),
                ("", "other", False),
            ]
            unlabelled = find_baseline(db, "shop", "support", "")
            assert unlabelled is not None
            assert unlabelled.run == "other"

    def test_one_that_was_removed_is_not_one(self, recorded: Any) -> None:
        set_baseline(recorded, "run1")
        remove_baseline(recorded)

        assert lookup(recorded).run("shop", "support") == Ok(None)
        with closing(recorded.log.reader()) as db:
            assert find_baseline(db, "shop", "support") is None
            assert list_baselines(db) == []

    def test_it_stays_the_same_while_a_run_lasts(self, recorded: Any) -> None:
        baselines = lookup(recorded)
        assert baselines.run("shop", "support") == Ok(None)
        set_baseline(recorded, "run1")

        assert baselines.run("shop", "support") == Ok(None)

    @pytest.mark.parametrize(
        ("chosen", "run"), [({}, "run2"), ({SUITE: "run1"}, "run1"), ({SUITE: None}, None)]
    )
    def test_a_resumed_run_keeps_what_its_first_session_found(
        self, recorded: Any, make: Any, chosen: dict[tuple[str, str], str | None], run: str | None
    ) -> None:
        writer = recorded.run("run2")
        writer.suite(tests=[make.planned()])
        writer.finish()
        set_baseline(recorded, "run2")

        assert RecordedBaselines(recorded.reader(), chosen).run(*SUITE) == Ok(run)

    def test_a_resumed_run_keeps_all_shards_of_a_group(self, recorded: Any) -> None:
        set_baseline(recorded, "run1", runs=["run1", "gone"])
        baselines = RecordedBaselines(recorded.reader(), {SUITE: "run1"})

        assert code_of(baselines.run(*SUITE)) is ErrorCode.BASELINE_CORRUPT


class TestUnusable:
    def test_a_run_of_another_history(self, recorded: Any) -> None:
        set_baseline(recorded, "elsewhere")

        found = lookup(recorded).run("shop", "support")

        assert code_of(found) is ErrorCode.BASELINE_CORRUPT
        assert "no results of the suite" in found.error.message

    def test_a_run_without_the_suite(self, recorded: Any) -> None:
        set_baseline(recorded, "run1", "another")

        assert code_of(lookup(recorded).run("shop", "another")) is ErrorCode.BASELINE_CORRUPT

    def test_a_run_whose_outputs_were_purged(self, recorded: Any) -> None:
        set_baseline(recorded, "run1")
        recorded.log.flush().result()
        tamper(recorded, "UPDATE contents SET body = NULL WHERE body = 'Hi there.'")

        found = lookup(recorded).run("shop", "support")

        assert code_of(found) is ErrorCode.BASELINE_CORRUPT
        assert "purged" in found.error.message

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE contents SET body = 'Hi!' WHERE body = 'Hi there.'",
            "UPDATE events SET data = replace(data, 'greets', 'grates')",
        ],
    )
    def test_a_run_that_is_not_as_it_was_recorded(self, recorded: Any, change: str) -> None:
        set_baseline(recorded, "run1")
        recorded.log.flush().result()
        tamper(recorded, change)

        found = lookup(recorded).run("shop", "support")

        assert code_of(found) is ErrorCode.BASELINE_CORRUPT
        assert "the run was changed after it was recorded" in found.error.message

    def test_a_run_that_is_not_the_one_that_was_sealed(self, recorded: Any, make: Any) -> None:
        sealed = {"run": "run1", "head": HeadOf("run/other")}
        other = recorded.run("other")
        other.suite(tests=[make.planned()])
        other.leave()
        event = new_event(BaselineSet(project="p", suite="s", run="r", by="me"))
        forged = type(event)("run.sealed", sealed)
        recorded.log.submit(Append("journal/forged", (forged,))).result()
        set_baseline(recorded, "run1")

        assert code_of(lookup(recorded).run("shop", "support")) is ErrorCode.BASELINE_CORRUPT

    def test_what_is_wrong_with_another_run_does_not_matter(self, recorded: Any, make: Any) -> None:
        other = recorded.run("other")
        other.suite(tests=[make.planned("rings")])
        other.execution(output="Ring!")
        other.finish()
        set_baseline(recorded, "run1")
        recorded.log.flush().result()
        tamper(recorded, "UPDATE contents SET body = 'Rang!' WHERE body = 'Ring!'")

        assert lookup(recorded).run("shop", "support") == Ok("run1")

    def test_a_run_of_many_suites_is_verified_once(
        self, history: Any, make: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        verified: list[str] = []

        def counting(path: str, stream: str, **options: Any) -> Verification:
            verified.append(stream)
            return verify_file(path, stream, **options)

        monkeypatch.setattr("kindlm_store.verification.verify_file", counting)
        suites = [f"suite {number}" for number in range(5)]
        for run in ("run1", "run2"):
            writer = history.run(run)
            for number, suite in enumerate(suites):
                writer.suite(suite, tests=[make.planned()])
                writer.execution(suite=number)
            writer.finish()
        for suite in suites:
            set_baseline(history, "run2" if suite == "suite 4" else "run1", suite)
        baselines = lookup(history)

        found = [baselines.run("shop", suite) for suite in suites]

        assert found == [Ok("run1")] * 4 + [Ok("run2")]
        assert verified == ["run/run1", "run/run2"]
        tamper(history, "UPDATE events SET data = replace(data, 'greets', 'grates')")
        errors = [
            BaselineChecks(history.reader()).corruption(["run1"], "shop", suite) for suite in suites
        ]
        assert all(
            error and suite in error.message for error, suite in zip(errors, suites, strict=True)
        )


class TestOutput:
    @pytest.mark.parametrize(
        ("repeats", "output"),
        [
            (["failed bad", "passed good", "passed better"], "good"),
            (["failed bad", "failed worse"], "bad"),
            (["errored", "failed bad"], "bad"),
            (["errored", "errored half"], "half"),
            (["errored"], None),
        ],
    )
    def test_the_first_that_passed_stands_for_a_test(
        self, history: Any, make: Any, repeats: list[str], output: str | None
    ) -> None:
        writer = history.run("run1")
        writer.suite(tests=[make.planned(repeat=len(repeats))])
        for number, repeat in enumerate(repeats, start=1):
            status, _, text = repeat.partition(" ")
            writer.execution(
                repeat=number,
                output=text or None,
                assertions={"passed": (make.passed(),), "failed": (make.failed(),)}.get(status, ()),
                error=("PROVIDER_TIMEOUT", 203, "late", None) if status == "errored" else None,
            )
        writer.finish()

        assert output_of(history.reader(), ["run1"], TEST) == output

    def test_only_of_the_same_test_target_suite_project_and_run(
        self, history: Any, make: Any
    ) -> None:
        suites = [("mall", "sales"), ("shop", "support"), ("shop", "sales"), ("fair", "sales")]
        for run in ("run1", "run2"):
            writer = history.run(run)
            for ordinal, (project, suite) in enumerate(suites):
                planned = [make.planned(test, target) for test in "ab" for target in "xy"]
                writer.suite(suite, tests=planned, project=project)
                for test in planned:
                    output = f"{run} {project} {suite} {test.name} {test.target}"
                    writer.execution(test.name, test.target, suite=ordinal, output=output)
            writer.finish()
        output_here = partial(output_of, history.reader())

        sales = QualifiedName("shop", "sales", "b", "x")
        assert output_here(["run2"], sales) == "run2 shop sales b x"
        assert output_here(["run2"], sales._replace(target="z")) is None
        assert output_here(["run3"], sales) is None

    def test_the_last_attempt_counts(self, history: Any, make: Any) -> None:
        writer = history.run("run1")
        writer.suite(tests=[make.planned()])
        writer.execution(number=1, attempt=1, output="first", finished=False)
        writer.execution(number=1, attempt=2, output="second", assertions=(make.passed(),))
        writer.finish()

        assert output_of(history.reader(), ["run1"], TEST) == "second"


def tamper(history: Any, change: str) -> None:
    """Change what was recorded, as the store never would."""
    with closing(sqlite3.connect(history.path, isolation_level=None)) as connection:
        for table in ("events", "contents", "streams"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_update")
        connection.execute(change)
