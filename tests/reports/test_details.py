"""What `--verbose` adds to the terminal report."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def run(history: Any, make: Any) -> Any:
    """A run with a test that passed on its second try, and one that failed."""
    writer = history.run()
    writer.suite(tests=[make.planned("greets"), make.planned("refunds"), make.planned("later")])
    writer.execution(
        "greets",
        failures=(make.provider_failed(),),
        assertions=(make.passed(duration_ms=0.25), make.passed("judge", "kind", duration_ms=1500)),
    )
    writer.execution("refunds", output="Go \x1b[2J away.", assertions=(make.failed(),))
    writer.execution("later", status=make.SKIPPED)
    return writer.finish()


def line_with(text: str, *parts: str) -> str:
    (found,) = [line for line in text.splitlines() if all(part in line for part in parts)]
    return found


def test_every_try_is_reported_with_what_became_of_it(run: Any, write: Any) -> None:
    text = write(run, "terminal", verbose=True, width=200)
    line_with(text, "PROVIDER_RATE_LIMIT, HTTP 429", "Tried again after 800 ms.")
    line_with(text, "passed · responses 1", "latency 120 ms")


def test_every_assertion_has_its_time(run: Any, write: Any) -> None:
    text = write(run, "terminal", verbose=True, width=200)
    line_with(text, "✓ contains contains hi", "0.25 ms")
    line_with(text, "✓ judge kind", "1.5 s")


def test_bodies_are_those_of_what_failed_and_harmless(run: Any, write: Any) -> None:
    text = write(run, "terminal", verbose=True, width=200)
    assert text.count("body  ") == 1
    assert "away." in line_with(text, "body  ")
    assert "\x1b" not in text


def test_names_of_assertions_hold_no_personal_data(history: Any, make: Any, write: Any) -> None:
    found = {"source": "output", "start": 0, "end": 15, "name": "email", "excerpt": "a**@***.com"}
    leak = make.failed("pii", "pii", "PII_DETECTED", evidence=[found])
    run = history.run()
    run.suite(tests=[make.planned()])
    denied = make.failed("keywords_deny", "ann@example.com")
    run.execution(output="ann@example.com", assertions=(leak, denied))
    details = write(run.finish(), "terminal", verbose=True).partition("Details")[2]
    assert "keywords_deny a**@" in details
    assert "ann@" not in details


def test_without_it_nothing_of_that_is_there(run: Any, write: Any) -> None:
    text = write(run, "terminal")
    assert "Details" not in text
    assert "HTTP 429" not in text
    assert "later" not in write(run, "terminal", verbose=True, width=200).partition("Details")[2]
