"""An agent over HTTP that is named by its URL on the command line."""

from __future__ import annotations

from kindlm.config.agent_schema import AgentConfig
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Document
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.scenarios.configuration import agent_config
from kindlm.spelling import TOML
from kindlm.url_secrets import secret_parts


def agent_at(url: str) -> Result[AgentConfig]:
    """Return the agent at a URL, or what is wrong with it.

    One with a secret is refused: it is written into files.
    """
    if any(secret_parts(url)):
        return Err(secret_in_url())
    reporter = Reporter("", Document(), TOML)
    config = agent_config({"type": "http", "url": url}, reporter)
    if config is not None:
        return Ok(config)
    first = reporter.diagnostics[0].error
    return Err(_refused(f"The URL of the agent is of no use: {first.message}.", first.hint))


def secret_in_url() -> KindlmError:
    """Return the error of a URL that would put a secret into a file."""
    return _refused(
        "The URL of the agent holds a secret, which would be written into a file.",
        "Name the agent in kindlm.toml, with ${env.NAME} for that.",
    )


def _refused(message: str, hint: str | None) -> KindlmError:
    return KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint)
