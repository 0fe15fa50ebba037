"""Finds and hides credentials that are written into a configuration.

They belong in the environment. If a file holds one, it must not reach the history or a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.document import items, section
from kindlm.secrecy import header_secrets, hide_credentials, program_secrets


def written_in(raw: Any) -> set[str]:
    """Return the credentials in a file that may have errors: in its agents' headers and `env`."""
    return {
        secret
        for _, agent in items(section(raw), "agents")
        for secret in (
            *header_secrets(section(agent, "headers")),
            *program_secrets(section(agent, "env")),
        )
    }


def hide_in_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an agent as they may be recorded."""
    hidden = {"env": hide_credentials(options["env"])} if options.get("env") else {}
    return {**options, **hidden}
