"""Questions about one run cost the same in a long history as in a short one.

Counted are the steps of SQLite's virtual machine: they depend on the rows that a query visits and
not on the machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

import pytest
from recorded_history import History, Make

from kindlm.browse.descriptions import QUERIES
from kindlm.history.baselines import output_of
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.queries import UNPRICED
from kindlm.history.run_names import find_run, latest_finished
from kindlm.history.run_view import RunView
from kindlm.history.runs import RunFilter, read_figures, runs
from kindlm.history.trends import find_tests, read_trend
from kindlm.plan import QualifiedName
from kindlm.reports.compliance.compliance_facts import read_history

SHORT, LONG = 10, 40
TESTS = 5
RUN = "r003"

Question = Callable[[sqlite3.Connection], object]


def listed(db: sqlite3.Connection, wanted: RunFilter) -> object:
    found = list(runs(db, wanted))
    return read_figures(db, found)


def whole_run(db: sqlite3.Connection) -> object:
    view = RunView(db, RUN)
    tests = list(view.tests())
    return (
        view.summary,
        [list(view.executions(test)) for test in tests],
        view.ask(UNPRICED).fetchall(),
    )


def whole_execution(db: sqlite3.Connection) -> object:
    view = RunView(db, RUN)
    execution = view.execution("2")
    assert execution is not None
    return (
        view.assertions(execution),
        view.tool_calls(execution, all_attempts=True),
        view.calls(execution),
    )


def rows_of(view: str) -> Question:
    return lambda db: db.execute(f"SELECT * FROM {view} WHERE run = ?", (RUN,)).fetchall()


QUESTIONS: dict[str, Question] = {
    "the newest runs": lambda db: listed(db, RunFilter(limit=5)),
    "the newest runs of a suite": lambda db: listed(db, RunFilter(suite="support", limit=5)),
    "a run by its id": lambda db: find_run(db, RUN),
    "a run": whole_run,
    "an execution": whole_execution,
    "a test over its newest runs": lambda db: (
        read_trend(db, QualifiedName("shop", "support", "test 1", "gpt"), limit=5).points
    ),
    "the output that a test is compared with": lambda db: output_of(
        db, [RUN], QualifiedName("shop", "support", "test 1", "gpt")
    ),
    **{
        f"the {view} of a run": rows_of(view)
        for view in (
            "execution_log",
            "tool_call_log",
            "assertion_log",
            "provider_call_log",
            "tests",
            "spend",
        )
    },
}


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[sqlite3.Connection]]:
    """A short history and a long one, which all questions are asked of."""
    folder = tmp_path_factory.mktemp("histories")
    opened = [History(folder / f"{size}.db") for size in (SHORT, LONG)]
    for history, size in zip(opened, (SHORT, LONG), strict=True):
        for number in range(size):
            run = history.run(f"r{number:03}")
            run.suite(tests=[Make.planned(f"test {n}") for n in range(TESTS)])
            for n in range(TESTS):
                run.execution(f"test {n}", tools=(("lookup", {}, {}),), assertions=(Make.passed(),))
            run.execution(tools=(("lookup", {}, {}),), assertions=(Make.failed(),))
            run.execution(
                failures=(Make.provider_failed(),), error=("PROVIDER_TIMEOUT", 201, "Late.", "")
            )
            run.finish()
    yield [history.reader() for history in opened]
    for history in opened:
        history.close()


@pytest.fixture
def steps_of(histories: list[sqlite3.Connection]) -> Callable[[Question], list[int]]:
    """Asks a question of a short history and of a long one; returns the steps that each took."""
    return lambda question: [_steps(db, question) for db in histories]


def _steps(db: sqlite3.Connection, question: Question) -> int:
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    db.set_progress_handler(step, 1)
    assert question(db)
    db.set_progress_handler(None, 0)
    return taken


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_not_asked_for_is_not_read(
    name: str, steps_of: Callable[[Question], list[int]]
) -> None:
    short, long = steps_of(QUESTIONS[name])
    assert long < 1.2 * short + 50


def test_the_newest_run_of_a_suite_takes_one_look_at_each_run(
    steps_of: Callable[[Question], list[int]],
) -> None:
    short, long = steps_of(lambda db: latest_finished(db, "support"))
    assert long < 1.2 * short * LONG / SHORT


def test_the_tests_of_a_name_take_one_look_at_each_run(
    steps_of: Callable[[Question], list[int]],
) -> None:
    short, long = steps_of(lambda db: find_tests(db, "test 1"))
    assert long < 1.2 * short * LONG / SHORT


def test_what_changed_before_a_run_takes_one_look_at_each_other_run(
    steps_of: Callable[[Question], list[int]],
) -> None:
    def history_of(db: sqlite3.Connection) -> object:
        (newest,) = db.execute("SELECT max(id) FROM runs").fetchone()
        view = RunView(db, newest)
        return read_history(view, view.suites[0])

    short, long = steps_of(history_of)
    # And of one more run, the models that answered.
    assert long - short < 150 * (LONG - SHORT)


def test_a_comparison_of_two_runs_takes_a_few_looks_at_each_run(
    steps_of: Callable[[Question], list[int]],
) -> None:
    short, long = steps_of(lambda db: compare_runs(db, RUN, "r004", DiffOptions()).verdict)
    assert long - short < 30 * (LONG - SHORT)


@pytest.mark.parametrize("name", [name for name in QUERIES if ":run" in QUERIES[name]["sql"]])
def test_a_saved_query_of_one_run_takes_one_look_at_each_run(
    name: str, steps_of: Callable[[Question], list[int]]
) -> None:
    short, long = steps_of(lambda db: db.execute(QUERIES[name]["sql"], {"run": RUN}).fetchall())
    assert long - short < 10 * (LONG - SHORT)
