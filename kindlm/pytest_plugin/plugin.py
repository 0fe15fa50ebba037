"""The part that pytest always loads: options, and the hint that scenarios need `--kindlm`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from kindlm.scenarios.api import spec_of

_HINT = "a scenario of kindlm: run pytest --kindlm, or kindlm test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all of them begin with `--kindlm`."""
    group = parser.getgroup("kindlm", "kindlm: scenarios, which talk to the agent under test")
    group.addoption(
        "--kindlm", action="store_true", help="run scenarios, and record them in the history"
    )
    group.addoption(
        "--kindlm-db",
        metavar="PATH",
        help="the history; by default the one that kindlm test records in",
    )
    group.addoption("--kindlm-label", metavar="NAME", help="a name to find the run by")
    group.addoption(
        "--kindlm-repeat",
        type=int,
        metavar="N",
        help="how often to run each scenario, instead of its `repeats`",
    )
    group.addoption(
        "--kindlm-max-cost",
        type=float,
        metavar="USD",
        help="start nothing more once calls have cost this much, in each process",
    )


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Let a session with `--kindlm` fail if something in it calls `sys.exit(0)`.

    pytest itself reports that as a failure while tests run, but not while the session ends.
    """
    try:
        return (yield)
    except SystemExit as ended:
        if not config.getoption("--kindlm") or ended.code not in (0, None):
            raise
        sys.stderr.write("\nkindlm: pytest was ended by sys.exit(0), as by a signal handler.\n")
        return pytest.ExitCode.INTERNAL_ERROR


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest of the plugin with `--kindlm`."""
    if config.getoption("--kindlm"):
        from kindlm.pytest_plugin.scenario_items import register

        register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip scenarios without `--kindlm`: pytest alone cannot run them."""
    if config.getoption("--kindlm"):
        return
    for item in items:
        if spec_of(getattr(item, "function", None)) is not None:
            item.add_marker(pytest.mark.skip(reason=_HINT))
