"""Loads what runs scenarios, once that was asked for."""

from __future__ import annotations

import pytest

from kindlm.pytest_plugin.controller import Controller
from kindlm.pytest_plugin.request import read_options
from kindlm.pytest_plugin.scenario_items import ScenarioItems

__all__ = ["register"]


def register(config: pytest.Config) -> None:
    """Register what runs scenarios here, and what looks after workers if there are any."""
    asked = read_options(config)
    config.pluginmanager.register(ScenarioItems(asked), "kindlm-scenarios")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(asked), "kindlm-controller")
