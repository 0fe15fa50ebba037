"""Runs the scenarios that pytest collected, and records all of them as one run."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.guard import guard
from kindlm.outcome import Status
from kindlm.pytest_plugin.controller import Controller
from kindlm.pytest_plugin.driven_run import DrivenRun, Ran, failure_text
from kindlm.pytest_plugin.session_request import (
    SessionOptions,
    Test,
    YamlFile,
    YamlItem,
    error_text,
    holds_scenarios,
    holds_tests,
    lost_items,
    read_options,
    request_for,
    test_of,
    trial_argument,
)
from kindlm.pytest_plugin.summary import (
    failure_report,
    print_problems,
    print_recorded,
    write_configured_reports,
)
from kindlm.recording.history_file import new_run_id
from kindlm.recording.project import run_environment
from kindlm.scenarios.api import spec_of
from kindlm.scenarios.marks import AGENT_FIXTURE
from kindlm.scenarios.scenario_suite import with_agent
from kindlm.suite import Case
from kindlm.wording import count, first_of


def register(config: pytest.Config) -> None:
    """Register the hooks that run scenarios, and those that control workers."""
    guard.watch_exits(partial(_explain_exit, config))
    config.add_cleanup(lambda: guard.watch_exits(None))
    config.add_cleanup(_hide_log_lines(config))
    options = read_options(config)
    config.pluginmanager.register(ScenarioItems(options), "kindlm-scenarios")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(options), "kindlm-controller")


def _hide_log_lines(config: pytest.Config) -> Callable[[], None]:
    """Hide log lines of kindlm, which pytest would show with each failure; returns an undo.

    They are shown from the level in `KINDLM_LOG` on; another word there is a warning.
    """
    logger = logging.getLogger("kindlm")
    before, levels = logger.level, logging.getLevelNamesMapping()
    asked = os.environ.get("KINDLM_LOG", "").upper()
    if asked and asked not in levels:
        what = f"KINDLM_LOG={asked.lower()} is not a level: kindlm logs nothing"
        config.issue_config_time_warning(pytest.PytestConfigWarning(what), stacklevel=2)
    logger.setLevel(levels.get(asked, logging.CRITICAL + 1))
    return lambda: logger.setLevel(before)


def _explain_exit(config: pytest.Config, how: str) -> None:
    """Print what ends pytest; pytest would capture the message unless that is suspended."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    sys.stderr.write(f"\nkindlm: pytest is ended by {how}, before all tests had run.\n")
    sys.stderr.flush()


_FUNCTION = pytest.StashKey[Callable[..., Any]]()
"""The function of an item as the user wrote it, before plugins for async tests replace it."""


_MOST = 3
"""The most tests that an objection names."""

_ONCE = "a scenario runs once in a session: to repeat it, write @scenario(repeats=…)"
"""Told to plugins that rerun tests."""

_GREEN = (Status.PASSED, Status.SKIPPED)

_FAILURES = (Exception, pytest.fail.Exception)
"""Exceptions that fail a test; all others end the session."""


class ScenarioItems:
    """The hooks of a process that runs items: pytest itself, or a worker of pytest-xdist."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._deselected: list[pytest.Item] = []
        self._uncollected: list[str] = []
        self._held: dict[pytest.Collector, Sequence[pytest.Item | pytest.Collector]] = {}
        self._tests: dict[pytest.Item, Test] = {}
        self._lost: dict[pytest.Item, KindlmError] = {}
        self._failed: dict[str, str] = {}
        self._live: DrivenRun | None = None

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect scenarios in YAML."""
        return YamlFile.from_parent(parent, path=file_path) if holds_scenarios(file_path) else None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Remember all items of each file and class; pytest keeps only the requested ones.

        With `--lf`, pytest removes items from the report, after this hook has copied them. Before
        pytest imports a file, the environment gets the variables of its `.env` files.
        """
        if isinstance(collector, pytest.File):
            folders = [collector.path.parent, self._options.root]
            os.environ.update(run_environment(folders, os.environ))
        report = yield
        if isinstance(collector, pytest.File | pytest.Class):
            self._held[collector] = list(report.result or ())
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what pytest cannot collect; it may be told to run the rest."""
        if report.failed:
            self._uncollected.append(report.nodeid)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give the argument of the trial a value, so that pytest does not look for a fixture.

        The id of the value is hidden, so names of tests stay as they are.
        """
        if spec_of(metafunc.function) is None:
            return
        trial = trial_argument(metafunc.definition, metafunc.function)
        if trial in metafunc.fixturenames:
            hidden = pytest.param(None, id=pytest.HIDDEN_PARAM)
            metafunc.parametrize(trial, [hidden])

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, obj: object
    ) -> Generator[None, Any, Any]:
        """Let scenarios without their own agent use the fixture `agent`, if there is one.

        The mark is removed after pytest made the items, since another file may import the function.
        """
        spec = spec_of(obj)
        fixtures = collector.session._fixturemanager  # noqa: SLF001 - pytest has no public way
        if (
            spec is None
            or spec.agent is not None
            or not fixtures.getfixturedefs(AGENT_FIXTURE, collector)
        ):
            return (yield)
        before = list(getattr(obj, "pytestmark", ()))
        pytest.mark.usefixtures(AGENT_FIXTURE)(obj)
        try:
            return (yield)
        finally:
            obj.pytestmark = before  # type: ignore[attr-defined]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember the collected items that do not run."""
        self._deselected += items

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Begin the run, now that all tests are known."""
        option = session.config.option
        # pytest stops if a file could not be collected.
        will_stop = session.testsfailed and not option.continue_on_collection_errors
        if option.collectonly or will_stop:
            return
        self._lost = lost_items(session.items)
        root = self._options.root
        chosen = {item: test for item in session.items if (test := test_of(item, root))}
        if not chosen:
            return
        others = [test for item in self._deselected if (test := test_of(item, root))]
        files = {test.file: None for test in (*chosen.values(), *others)}
        items = {file: list(self._items_in(file)) for file in files}
        request, warned = request_for(self._options, items, list(chosen.values()), dict(os.environ))
        live = DrivenRun(request, new_run_id(), dealt=self._options.dealt)
        live.problems += warned
        try:
            live.start()
        except Exception as error:
            message = f"kindlm cannot record in {self._options.database}: {error}"
            # The controller of workers shows it.
            getattr(session.config, "workeroutput", {})["kindlm"] = {"unrecorded": message}
            raise pytest.UsageError(message) from error
        self._tests, self._live = chosen, live

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Keep the function of a scenario before other plugins wrap it."""
        if item in self._tests and isinstance(item, pytest.Function):
            item.stash[_FUNCTION] = item.obj

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run all repeats of a scenario; fails the item with the failed checks."""
        if (error := self._lost.get(pyfuncitem)) is not None:
            pytest.fail(error_text(error), pytrace=False)
        test = self._tests.get(pyfuncitem)
        if test is None or self._live is None:
            return None
        function = pyfuncitem.stash[_FUNCTION]
        script = test.script(function, pyfuncitem.funcargs)

        def change(case: Case) -> Case:
            case = replace(case, script=script)
            if not test.has_agent_of_fixture:
                return case
            return with_agent(case, pyfuncitem.funcargs[AGENT_FIXTURE], test.scenario)

        ran = self._run(pyfuncitem, change)
        _finish_item(self._live, ran, self._options)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record a scenario that did not run: it was skipped, or a fixture failed."""
        report = yield
        test = self._tests.get(item)
        raised = call.excinfo
        if test is None or report.when != "setup" or raised is None:
            return report
        is_failure = isinstance(raised.value, _FAILURES)
        # An `xfail` mark turns a failure into a skip, and its `run=False` raises its own exception.
        if isinstance(raised.value, pytest.xfail.Exception) or (report.skipped and not is_failure):
            self._run(item, lambda case: replace(case, skip=True))
        elif is_failure:
            why = raised.exconly(tryshort=True)
            error = KindlmError(
                ErrorCode.ASSERTION_EVAL_ERROR,
                f"A fixture failed before the scenario began: {why}",
                "Fix the fixture; pytest shows where it failed.",
            )
            self._run(item, lambda case: replace(case, fault=error))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember which tests pytest fails, and in which phase."""
        if report.failed:
            self._failed.setdefault(report.nodeid, report.when)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the run as finished, or with the reason why it did not finish."""
        live = self._live
        if live is None:
            return
        live.end(_why_ended(session), self._objection(session, live.results))
        unwritten: list[KindlmError] = []
        if live.failure is None and not hasattr(session.config, "workerinput"):
            unwritten = write_configured_reports(live.run, self._options)
            live.problems += unwritten
        # Without this, `pytest.exit(returncode=0)` in a fixture would hide failures.
        is_bad = bool(unwritten or live.failure is not None or session.testsfailed)
        if is_bad and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["kindlm"] = {
                "run": live.run,
                "open": live.stays_open,
                "objection": live.objection,
                "chosen": len({test.full_name for test in self._tests.values()}),
                "ran": len(live.results),
                "duration_ms": live.duration_ms,
                "failed": live.failure is not None,
                "problems": list(map(error_text, live.problems)),
            }

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the problems, the run and the command that shows it."""
        if (live := self._live) is None:
            return
        print_problems(terminalreporter, map(error_text, live.problems))
        if live.failure is None:
            print_recorded(terminalreporter, "run", live.run, self._options)
        else:
            line = f"kindlm: the run could not be recorded: {failure_text(live.failure)}"
            terminalreporter.write_line(line, red=True)

    def _items_in(self, collector: pytest.Collector) -> Iterator[pytest.Item]:
        """Yield all items of a file; collects classes that pytest left out."""
        if collector not in self._held:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user did not request these classes
                collector.ihook.pytest_make_collect_report(collector=collector)
        for each in self._held.get(collector, ()):
            if isinstance(each, pytest.Item):
                yield each
            else:
                yield from self._items_in(each)

    def run_yaml(self, item: YamlItem) -> None:
        """Run a scenario of a YAML file; fails the item with the failed checks."""
        assert self._live is not None
        _finish_item(self._live, self._run(item, lambda case: case), self._options)

    def _run(self, item: pytest.Item, change: Callable[[Case], Case]) -> Ran:
        assert self._live is not None
        test = self._tests[item]
        return self._live.test(test.path, test.full_name, change)

    def _objection(self, session: pytest.Session, results: Mapping[str, Ran]) -> str | None:
        """Return the reason against the run if pytest failed what kindlm did not fail.

        pytest may fail a test for the teardown of a fixture, a failed subtest, a strict xfail mark,
        or another plugin, and a file with scenarios that it cannot import. Such a run does not
        pass.
        """
        root = session.config.rootpath
        lost = [name for name in self._uncollected if holds_tests(root / name.partition("::")[0])]
        if lost:
            return f"pytest could not collect {first_of(lost, _MOST)}"
        names = {item.nodeid: test.full_name for item, test in self._tests.items()}
        failed = [
            f"{item} ({phase})"
            for item, phase in self._failed.items()
            if (ran := results.get(names.get(item, ""))) is not None and ran.status in _GREEN
        ]
        if not failed:
            return None
        tests = count(len(failed), "test")
        return f"pytest failed {tests} that did not fail here: {first_of(failed, _MOST)}"


def _finish_item(live: DrivenRun, ran: Ran, options: SessionOptions) -> None:
    __tracebackhide__ = True
    if ran.error is not None:
        pytest.fail(error_text(ran.error), pytrace=False)
    if not ran.complete:
        pytest.fail(f"It did not finish: {ran.reason or _ONCE}", pytrace=False)
    if ran.status is Status.SKIPPED and not ran.again:
        pytest.skip("none of it ran")
    why = [] if ran.status in _GREEN else [failure_report(live, ran, options)]
    if ran.again:
        why.append(_ONCE)
    if why:
        pytest.fail("\n".join(why), pytrace=False)


def _why_ended(session: pytest.Session) -> str:
    stopped = session.shouldfail or session.shouldstop
    if isinstance(stopped, str):
        return f"pytest stopped: {stopped}"
    if session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return "pytest was interrupted"
    return "pytest ended before all tests had run"
