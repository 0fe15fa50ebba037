"""`kindlm review`: what people say of executions, and whether judges say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.events.codec import new_event
from kindlm.events.execution_events import ExecutionFinished, ExecutionStarted
from kindlm.events.run import ReviewRecorded, RunStarted, SuiteStarted
from kindlm.outcome import Status
from kindlm_store import NewEvent


@pytest.fixture
def review(kindlm: Any, history: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `kindlm review` on the history, as somebody."""

    def call(*arguments: str, as_user: str = "ann") -> Any:
        monkeypatch.setenv("LOGNAME", as_user)
        return kindlm("review", *arguments, "--db", history.path)

    return call


@pytest.fixture
def record(history: Any, make: Any) -> Any:
    """Record a run; `judged` says y or n for what the judge said of each repeat."""

    def call(run: str = "k3f9x2ab", judged: str = "yn", **started: Any) -> None:
        writer = history.run(run, **started)
        writer.suite(tests=[make.planned(repeat=len(judged))])
        for repeat, verdict in enumerate(judged, start=1):
            about = {"kind": "judge", "label": "Is kind", "threshold": 0.8}
            said = (
                make.passed(**about, score=0.9)
                if verdict == "y"
                else make.failed(**about, score=0.2, code="JUDGE_BELOW_THRESHOLD")
            )
            writer.execution(repeat=repeat, assertions=(said,))
        writer.finish()

    return call


def reviews_of(kindlm: Any, history: Any, run: str = "k3f9x2ab") -> dict[str, list[Any]]:
    report = json.loads(kindlm("report", run, "--format", "json", "--db", history.path).out)
    return {
        execution["id"]: [(r["by"].split("@")[0], r["verdict"]) for r in execution["reviews"]]
        for test in report["tests"]
        for execution in test["executions"]
    }


class TestRecording:
    def test_it_is_shown_with_its_note_and_by_whom(
        self, kindlm: Any, history: Any, record: Any, review: Any
    ) -> None:
        record()

        outcome = review("latest", "1", "fail", "--note", "Too cold.\x1b[2J")

        assert (outcome.code, outcome.out) == (0, "")
        assert "reviewed as fail by" in outcome.err
        shown = kindlm("show", "latest", "1", "--db", history.path).out
        assert "Reviews" in shown
        assert "✗ fail  ann@" in shown
        assert "Too cold.\\x1b[2J" in shown
        assert "Reviews" not in kindlm("show", "latest", "2", "--db", history.path).out
        run = kindlm("show", "latest", "--db", history.path).out
        assert "1 disputed by reviewers" in run

    def test_it_is_in_the_report_for_programs(
        self, kindlm: Any, history: Any, record: Any, review: Any
    ) -> None:
        record()
        review("k3f", "k3f9x2ab-2", "fail", "--note", "Cold.")

        report = json.loads(kindlm("report", "--format", "json", "--db", history.path).out)

        (said,) = report["tests"][0]["executions"][1]["reviews"]
        assert (said["verdict"], said["note"]) == ("failed", "Cold.")
        assert report["summary"]["reviews"] == {"executions": 1, "disputed": 0}

    def test_of_each_person_the_last_word_counts_and_all_stay_in_the_log(
        self, kindlm: Any, history: Any, record: Any, review: Any
    ) -> None:
        record()
        review("latest", "1", "pass")
        review("latest", "1", "fail", as_user="ben")

        review("latest", "1", "fail")

        assert reviews_of(kindlm, history)["k3f9x2ab-1"] == [("ben", "failed"), ("ann", "failed")]
        events = list(history.log.read(types=["review.recorded"]))
        assert [event.data["passed"] for event in events] == [True, False, False]
        assert all(event.stream.startswith("journal/") for event in events)
        kindlm("rebuild", "--db", history.path)
        assert reviews_of(kindlm, history)["k3f9x2ab-1"] == [("ben", "failed"), ("ann", "failed")]

    def test_the_last_word_counts_although_another_clock_was_ahead(
        self, kindlm: Any, history: Any, record: Any, review: Any
    ) -> None:
        record()
        review("latest", "1", "pass")
        by = next(iter(history.log.read(types=["review.recorded"]))).data["by"]
        early = new_event(ReviewRecorded(run="k3f9x2ab", execution=1, passed=False, by=by))
        history.log.append(
            "journal/ahead", [NewEvent(early.type, early.data, at="2999-01-01T00:00:00.000000Z")]
        )

        review("latest", "1", "pass")

        assert reviews_of(kindlm, history)["k3f9x2ab-1"] == [("ann", "passed")]

    def test_a_note_that_was_erased_is_shown_so(
        self, kindlm: Any, history: Any, record: Any, review: Any
    ) -> None:
        record()
        review("latest", "1", "fail", "--note", "Write to jane@example.com.")
        review("latest", "2", "pass", "--note", "Fine.")

        purged = kindlm("purge", "--matching", "jane@", "--yes", "--db", history.path)

        assert purged.code == 0, purged.err
        for shown in (kindlm("show", "latest", "1", "--db", history.path), review("--agreement")):
            assert "jane@" not in shown.out
            assert "[erased]" in shown.out
        assert "Fine." in kindlm("show", "latest", "2", "--db", history.path).out

    def test_what_cannot_be_reviewed(self, history: Any, record: Any, review: Any) -> None:
        record()
        for arguments, words in (
            (("latest", "99", "pass"), "no execution '99'"),
            (("nothing", "1", "pass"), "There is no run 'nothing'"),
            (("latest", "1", "maybe"), "maybe"),
            (("latest", "1"), "Write RUN, EXECUTION, and pass or fail"),
            (("latest", "1", "pass", "--suite", "support"), "require --agreement"),
            (("latest", "1", "--agreement"), "cannot be combined with EXECUTION"),
        ):
            outcome = review(*arguments)
            assert (outcome.code, outcome.out) == (1, "")
            assert words in outcome.err
        assert list(history.log.read(types=["review.recorded"])) == []

    def test_a_test_with_one_execution_names_it(
        self, kindlm: Any, history: Any, record: Any, review: Any, make: Any
    ) -> None:
        record(judged="y")
        record("second22", judged="yn")
        name = make.planned().name
        assert kindlm("show", "k3f9x2ab", name, "--db", history.path).code == 0
        assert review("k3f9x2ab", name, "pass").code == 0
        assert reviews_of(kindlm, history) == {"k3f9x2ab-1": [("ann", "passed")]}
        several = kindlm("show", "second22", name, "--db", history.path)
        assert several.code == 1
        assert "second22-1 (passed), second22-2 (failed)" in several.err
        assert "or its test" in kindlm("show", "second22", "no", "--db", history.path).err

    def test_what_a_stopped_run_never_came_to_cannot_be_reviewed(
        self, history: Any, make: Any, review: Any
    ) -> None:
        writer = history.run("stopped")
        writer.suite(tests=[make.planned(repeat=3)])
        writer.execution(repeat=1, assertions=(make.passed(),))
        writer.execution(repeat=2, finished=False)
        writer.execution(repeat=3, status=Status.SKIPPED)
        writer.interrupt()

        assert review("latest", "1", "pass").code == 0
        assert "has not ended" in review("latest", "2", "pass").err
        assert "was skipped" in review("latest", "3", "pass").err


def rescored(history: Any, make: Any, run: str, said: Any) -> None:
    """Record a run that looks at the first conversation of k3f9x2ab again."""
    started = RunStarted(
        project="shop", planned=1, mode="rescored", source_run="k3f9x2ab", versions={}
    )
    suite = SuiteStarted(
        suite="support",
        ordinal=0,
        project="shop",
        front_end="kindlm",
        path="kindlm.yaml",
        config_hash="0123456789ab",
        config="{}",
        gates=[],
        tests=[make.planned()],
    )
    execution = ExecutionStarted(
        suite=0,
        test="greets",
        target="gpt",
        repeat=1,
        attempt=1,
        messages=[],
        source="k3f9x2ab-1.1",
    )
    inside = (execution, said, ExecutionFinished(status=Status.FAILED))
    events = [new_event(payload) for payload in (started, suite)]
    events += [new_event(payload, subject="1.1") for payload in inside]
    history.log.append(f"run/{run}", events)


class TestAgreement:
    def test_a_review_is_of_every_run_that_looks_at_the_conversation(
        self, kindlm: Any, history: Any, make: Any, record: Any, review: Any
    ) -> None:
        record(judged="yy")
        review("k3f9x2ab", "1", "fail", "--note", "Too cold.")
        harder = make.failed(kind="judge", label="Is kind", code="JUDGE_BELOW_THRESHOLD")
        rescored(history, make, "m7q2w8rt", harder)

        assert "Too cold." in kindlm("show", "m7q2w8rt", "1", "--db", history.path).out
        (then,) = json.loads(review("k3f9x2ab", "--agreement", "--format", "json").out)["judges"]
        assert (then["onlyKindlmPasses"], then["bothFail"]) == (1, 0)
        (now,) = json.loads(review("--agreement", "--format", "json").out)["judges"]
        assert (now["onlyKindlmPasses"], now["bothFail"]) == (0, 1)
        assert "k3f9x2ab-1 has the same conversation" in review("m7q2w8rt", "1", "pass").err
        (said,) = reviews_of(kindlm, history)["k3f9x2ab-1"]
        assert said == ("ann", "passed")

    def test_judge_and_people_are_compared(self, history: Any, record: Any, review: Any) -> None:
        record(judged="yyn")
        for number, word in enumerate(("pass", "fail", "fail"), start=1):
            review("latest", str(number), word, "--note", f"Note {number}")

        outcome = review("--agreement")

        assert outcome.code == 0
        out = " ".join(outcome.out.split())
        assert "3 executions reviewed by 1 person" in out
        assert "judge passes 1 1" in out
        assert "judge fails 0 1" in out
        assert "agree 2 of 3" in out
        assert "kappa 0.40" in out
        assert "Undecided whether kappa is at least 0.60." in out
        assert "passed, people fail it" in out
        assert "Note 2" in out
        assert "kindlm show k3f9x2ab 2" in outcome.out
        assert "Note 1" not in out

    def test_programs_get_json(self, record: Any, review: Any) -> None:
        record(judged="yn")
        review("latest", "1", "fail")
        review("latest", "2", "fail")

        report = json.loads(review("--agreement", "--format", "json").out)

        (judge,) = report["judges"]
        assert (judge["reviews"], judge["onlyKindlmPasses"], judge["bothFail"]) == (2, 1, 1)
        assert judge["kappa"] == 0
        assert (judge["trust"], report["criteria"][0]["criterion"]) == ("undecided", "Is kind")
        (differs,) = report["disagreements"]
        assert (differs["id"], differs["people"]) == ("k3f9x2ab-1", "failed")

    def test_it_can_be_narrowed(self, record: Any, review: Any) -> None:
        record("run1", "yn")
        record("run2", "y")
        for run, number in (("run1", "1"), ("run1", "2"), ("run2", "1")):
            review(run, number, "pass")

        def reviewed(*options: str) -> int:
            found = json.loads(review(*options, "--agreement", "--format", "json").out)
            return int(found["reviewed"])

        assert reviewed() == 3
        assert reviewed("run1") == 2
        assert reviewed("--suite", "support") == 3
        assert reviewed("--suite", "sales") == 0
        assert reviewed("--since", "2999-01-01") == 0
        assert "not an age or a date" in review("--agreement", "--since", "soon").err

    def test_nothing_is_reviewed(self, kindlm: Any, record: Any, review: Any, here: Any) -> None:
        record()

        outcome = review("--agreement")
        assert (outcome.code, outcome.out) == (0, "")
        assert "kindlm review RUN EXECUTION pass|fail" in outcome.err
        assert json.loads(review("--agreement", "--format", "json").out)["verdicts"] is None
        nowhere = kindlm("review", "--agreement", "--db", here / "nowhere.db")
        assert (nowhere.code, nowhere.out) == (1, "")

    def test_an_empty_history_has_nothing_to_review(self, history: Any, review: Any) -> None:
        assert review("--agreement").code == 0
        assert "There is no run 'latest'" in review("latest", "1", "pass").err
