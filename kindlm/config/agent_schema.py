"""The `agents` section: live agents as targets."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, ConfigDict, Field

from kindlm.config.section import Section, Text

__all__ = ["AgentConfig"]


def _with_other_names(schema: dict[str, Any]) -> None:
    """Publish `type` and `url`, which mean the same as `adapter` and `endpoint`."""
    properties = schema["properties"]
    properties["type"] = {**properties["adapter"]}
    properties["url"] = {**properties["endpoint"]}
    schema["required"] = ["id"]
    schema["allOf"] = [
        {"anyOf": [{"required": ["adapter"]}, {"required": ["type"]}]},
        {"anyOf": [{"required": ["endpoint"]}, {"required": ["url"]}]},
    ]


class AgentConfig(Section):
    """A live agent that is tested. Further keys are options of its adapter.

    The options of `http` are `request`, `body`, `responsePath` and `toolCallsPath`. Texts in
    options may hold {{env.NAME}} and {{serve.NAME.port}}.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_with_other_names)

    id: Text = Field(examples=["shop"])
    """Your name for this agent, used in reports."""
    adapter: Text = Field(
        validation_alias=AliasChoices("adapter", "type"),
        serialization_alias="adapter",
        examples=["http"],
    )
    """How it is talked to: `http` or `python`. `type` means the same."""
    endpoint: Text = Field(
        validation_alias=AliasChoices("endpoint", "url"),
        serialization_alias="endpoint",
        examples=["http://127.0.0.1:8000/chat"],
    )
    """Its URL; for `python` its `package.module:factory`. `url` means the same."""
    headers: dict[str, str] = Field(
        default={}, examples=[{"Authorization": "Bearer {{env.SHOP_TOKEN}}"}]
    )
    """HTTP headers. Credentials belong into the environment: {{env.NAME}}."""
