"""Which adapters of EvalView are served, and what a case says to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.formats.evalview.schema import AdapterConfig

AGENT_ADAPTERS = {
    "http": "http",
    "langgraph": "langgraph",
    "crewai": "crewai",
    "openai-assistants": "openai-assistants",
    "openai-assistant": "openai-assistants",
    "tapescope": "tapescope",
    "jsonl": "tapescope",
    "streaming": "streaming",
}
"""Adapters of agents as they are written, and as kindlm calls them."""

MODEL_ADAPTERS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "ollama": None,
}
"""Adapters that call a model with simulated tools, and where their keys are."""

USUAL_MODELS = {"anthropic": "claude-sonnet-4-5-20250929", "ollama": "llama3.2"}
"""What EvalView's adapters call where no model is named."""

UNSERVED = frozenset({"huggingface", "goose", "mcp", "cohere", "mistral", "opencode", "aider"})
"""Adapters that EvalView has and kindlm has not."""

NEEDS_NO_ENDPOINT = frozenset({"openai-assistants"})
SIMULATES_TOOLS = frozenset({"openai-assistants"})
"""Agents whose tools are answered by the mocks of a case."""

_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "langgraph": {
        "mode": "mode",
        "streaming": "streaming",
        "assistantId": "assistant_id",
        "inputKey": "input_key",
        "graphConfig": "graph_config",
    },
    "openai-assistants": {"assistantId": "assistant_id"},
    "tapescope": {"streaming": "streaming"},
    "streaming": {"streaming": "streaming"},
}


def options(adapter: str, config: AdapterConfig) -> dict[str, Any]:
    """Return the options of an agent, under their names in kindlm.yaml."""
    if adapter == "http":
        return {"request": "query"}
    written = {name: getattr(config, field) for name, field in _OPTIONS.get(adapter, {}).items()}
    return {name: value for name, value in written.items() if value is not None}
