"""Loads what runs scenarios, once that was asked for."""

from __future__ import annotations

import pytest

from kindlm.pytest_plugin.controller import Controller
from kindlm.pytest_plugin.objections import Objections
from kindlm.pytest_plugin.request import read_options
from kindlm.pytest_plugin.scenario_items import ScenarioItems

__all__ = ["register"]


def register(config: pytest.Config) -> None:
    """Register what runs scenarios here, and what looks after workers if there are any."""
    asked, objections = read_options(config), Objections()
    config.pluginmanager.register(objections, "kindlm-objections")
    config.pluginmanager.register(ScenarioItems(asked, objections), "kindlm-scenarios")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(asked), "kindlm-controller")
