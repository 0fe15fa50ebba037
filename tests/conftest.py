"""What tests of several packages share: histories, written as the engine writes them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cheap_settings import copy_new_histories, trust_no_authority, wait_for_no_disk
from hypothesis import settings
from loaded_kindlm import fork_agents
from recorded_history import History, Make
from tested_copy import refuse_another_copy

from examples import drawn
from kindlm import garbage
from kindlm.json_schema import load_jsonschema

# The machine decides how long an example takes; what hangs is ended by pytest-timeout.
settings.register_profile("kindlm", settings(), deadline=None, max_examples=drawn(100))
settings.load_profile("kindlm")

wait_for_no_disk()
copy_new_histories()
trust_no_authority()
fork_agents()
load_jsonschema()
# What a command keeps until its process ends is garbage once its test is over.
garbage.keep = lambda: None

_SETTINGS = (
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_WORK_TREE",
    "KINDLM_DB",
    "KINDLM_LOG",
    "NO_COLOR",
    "PYTHONUNBUFFERED",
    "TF_BUILD",
    *(f"{scheme}_PROXY" for scheme in ("ALL", "HTTP", "HTTPS")),
    *(f"{scheme}_proxy" for scheme in ("all", "http", "https")),
)
"""What CI services, hooks of git and developers set, and changes what kindlm does or writes."""


def pytest_configure() -> None:
    """Test this checkout, and let the programs that tests start receive signals.

    A shell lets a background job ignore SIGINT, `nohup` lets its command ignore SIGHUP, and
    children inherit what is ignored. They do not inherit a handler: one that does nothing keeps
    the signal without effect here, and gives children the default.
    """
    refuse_another_copy()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let a worker run tests that stand together: what a module sets up is set up once then."""
    if config.getoption("numprocesses", None) and config.getoption("dist") == "no":
        config.option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: tests wait for processes as long as they compute."""
    return (os.cpu_count() or 1) + 1


# What is imported and collected is no garbage, and would be looked at again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not in the tests and in what they have imported."""
    gc.freeze()
    gc.enable()


def pytest_sessionstart() -> None:
    """Forget settings of the outside once pytest has taken its own from them."""
    for name in _SETTINGS:
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what is cached between runs out of the developer's own cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """An empty history in a file of its own."""
    opened = History(tmp_path / "kindlm.db")
    yield opened
    opened.close()


@pytest.fixture
def make() -> type[Make]:
    """Constructors for the parts of a run."""
    return Make


@pytest.fixture
def impatient_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a pattern up after a tenth of a second: for those that never come to an end."""
    for name in (
        "checks.output._PATTERN_S",
        "checks.guardrails._PATTERNS_S",
        "json_schema_keywords._PATTERN_SECONDS",
        "recording.personal_data._TEXT_S",
    ):
        monkeypatch.setattr(f"kindlm.{name}", 0.1)
