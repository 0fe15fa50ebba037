"""The identity of a configuration: what it means, not how it is written.

The hash covers the resolved configuration (defaults filled in, key order and comments gone), which
gates the user wrote, and the content of every file it refers to. Placeholders for environment
variables and ports are hashed as they stand, so that a secret or a free port never changes it; a
credential that is written out in a header has a mark in its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kindlm.config.credentials import hide_in_options
from kindlm.config.schema import KindlmConfig
from kindlm.secrecy import hide_headers
from kindlm.section import resolved

HASH_LENGTH = 12


def config_text(
    config: KindlmConfig, digests: Mapping[str, str], report_template: str | None = None
) -> str:
    """Return the resolved configuration in canonical JSON, as it is recorded.

    The template of the compliance report is in it as a whole: reports of the run are made from what
    is recorded.
    """
    written = resolved(config)
    # The credentials of agents that are written out are not recorded.
    agents = [
        {**hide_in_options(agent), "headers": hide_headers(agent["headers"])}
        for agent in written["agents"]
    ]
    document = {
        "config": {**written, "agents": agents},
        "gatesWritten": sorted(written_gates(config)),
        "files": dict(digests),
    }
    if report_template is not None:
        document["reportTemplate"] = report_template
    return canonical(document)


def canonical(document: Mapping[str, Any]) -> str:
    """Return what was configured as JSON text; its form is a part of each recorded hash."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def config_hash(text: str) -> str:
    """Return the first 12 hex digits of the SHA-256 of a `config_text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def written_gates(config: KindlmConfig) -> frozenset[str]:
    """Return the names, as in YAML, of the gates that the user wrote."""
    fields = type(config.gates).model_fields
    return frozenset(fields[name].alias or name for name in config.gates.model_fields_set)
