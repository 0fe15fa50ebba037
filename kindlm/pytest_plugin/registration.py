"""Loads what runs scenarios, once that was asked for."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from kindlm.guard import guard
from kindlm.pytest_plugin.controller import Controller
from kindlm.pytest_plugin.request import read_options
from kindlm.pytest_plugin.scenario_items import Objections, ScenarioItems


def register(config: pytest.Config) -> None:
    """Register what runs scenarios here, and what looks after workers if there are any."""
    guard.watch_exits(partial(_explain_exit, config))
    config.add_cleanup(lambda: guard.watch_exits(None))
    asked, objections = read_options(config), Objections()
    config.pluginmanager.register(objections, "kindlm-objections")
    config.pluginmanager.register(ScenarioItems(asked, objections), "kindlm-scenarios")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(asked), "kindlm-controller")


def _explain_exit(config: pytest.Config, how: str) -> None:
    """Print what ends pytest, past what captures output until a test has ended."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    sys.stderr.write(f"\nkindlm: pytest is ended by {how}, before all tests had run.\n")
    sys.stderr.flush()
