"""Which models and agents the tests of a configuration run on."""

from __future__ import annotations

from kindlm.config.schema import KindlmConfig, TestConfig

_COMMAND = "command"
"""The one target of a test with a command."""


def targets_of(test: TestConfig, config: KindlmConfig) -> tuple[str, ...]:
    """Return the ids of the targets of a test, in order.

    These are the `models` that it names, else all agents, else all models that do not only judge.
    """
    if test.command is not None:
        return (_COMMAND,)
    if test.models is not None:
        return tuple(test.models)
    if config.agents:
        return tuple(agent.id for agent in config.agents)
    return tuple(model.id for model in config.models if model.role != "judge")


def runs_on_models(test: TestConfig, config: KindlmConfig) -> bool:
    """Tell whether a test has a model among its targets, which calls simulated tools."""
    if test.command is not None:
        return False
    if test.models is None:
        return not config.agents
    agents = {agent.id for agent in config.agents}
    return any(target not in agents for target in test.models)
