"""Runs language-neutral cases: see data/README.md."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest
from vector_cases import (
    FILES,
    OURS,
    NoCounterpart,
    Tracked,
    UnknownInput,
    cases_of,
    departing,
    is_ours,
    safely,
)

_TESTS: Final = Path(__file__).parents[1]
_PRODUCT: Final = ("kindlm", "kindlm_store", "kindlm_migrations")
_NOT_SERVED: Final = "not served: "


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that gives a test its cases."""
    config.addinivalue_line(
        "markers",
        "vectors(file, *areas, where, departures, ignores, beside): run with each case of these "
        "areas of the file as `vector`, or with those of them for which `where` holds; "
        "`departures` are the rules by which kindlm differs (vector_cases.Departure); `ignores` "
        "names input, `beside` expected values, that this test does not have to look at",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each case that it serves."""
    marker = metafunc.definition.get_closest_marker("vectors")
    if marker is None:
        return
    file, *areas = marker.args
    where = marker.kwargs.get("where", lambda case: True)
    cases = [
        _parameter(case, marker.kwargs.get("departures", ()))
        for case in cases_of(file)
        if case["area"] in areas and safely(where, case)
    ]
    metafunc.parametrize("vector", cases)


def _parameter(case: dict[str, Any], departures: Any) -> Any:
    name = case["id"]
    case, rules = departing(case, departures)
    # An assertion may fail then, and nothing else: a crash is no rule of ours.
    marks = [
        pytest.mark.xfail(reason=rule.rule, strict=True, raises=AssertionError)
        for rule in rules
        if rule.ours is None
    ]
    return pytest.param(case, id=name, marks=marks)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Report a case that its test does not understand as not served, by name and with why.

    That is input that is not there, that nobody has looked at, or that the code of the tests
    stumbles over; what fails in kindlm is a failure.
    """
    marker = pyfuncitem.get_closest_marker("vectors")
    if marker is None:
        return (yield)
    case = pyfuncitem.funcargs["vector"]
    given = Tracked(case["input"])
    expected = case["expected"]
    if isinstance(expected, dict):
        expected = Tracked(expected)
    pyfuncitem.funcargs["vector"] = {**case, "input": given, "expected": expected}
    try:
        result = yield
    except NoCounterpart as reason:
        pytest.xfail(f"{_NOT_SERVED}{reason}")
    except UnknownInput as reason:
        _not_understood(str(reason))
    except AssertionError:
        raise
    except Exception as error:
        if is_ours() or not (_is_of_tests(error.__traceback__) or _is_of_another_type(case)):
            raise
        _not_understood(f"unknown input: {type(error).__name__}: {error}", error)
    if unread := given.unread - set(marker.kwargs.get("ignores", ())):
        _not_understood(f"unknown input: {', '.join(sorted(unread))}")
    if isinstance(expected, Tracked) and (
        unread := expected.unread - set(marker.kwargs.get("beside", ()))
    ):
        _not_understood(f"not compared: {', '.join(sorted(unread))}")
    return result


def _not_understood(why: str, error: Exception | None = None) -> None:
    """End a test whose case is not understood; of our own cases, all have to be."""
    if is_ours():
        raise UnknownInput(why) from error
    pytest.xfail(f"{_NOT_SERVED}{why}")


def _is_of_another_type(case: dict[str, Any]) -> bool:
    """Tell whether some input has another type than in all of our cases of the same area."""
    types: dict[str, set[type]] = {}
    for file in FILES:
        for one in (*cases_of(file, within=OURS), *cases_of(file, within=OURS / "added")):
            if one["area"] == case["area"]:
                for name, value in one["input"].items():
                    types.setdefault(name, set()).add(type(value))
    return any(type(value) not in types.get(name, ()) for name, value in case["input"].items())


def _is_of_tests(trace: TracebackType | None) -> bool:
    """Tell whether the code of the tests raised, itself or by what it asked of a library."""
    found = False
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if module in _PRODUCT:
            found = False
        elif Path(trace.tb_frame.f_code.co_filename).is_relative_to(_TESTS):
            found = True
        trace = trace.tb_next
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what is not served, each by its name."""
    told = sorted(
        f"{report.nodeid.rpartition('::')[2]}: {report.wasxfail.removeprefix('reason: ')}"
        for report in terminalreporter.stats.get("xfailed", ())
        if _NOT_SERVED in report.wasxfail
    )
    if told:
        terminalreporter.section(f"vectors not served: {len(told)}")
        for line in told:
            terminalreporter.write_line(line)
