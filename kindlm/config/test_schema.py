"""The schema of `prompts` and `tests`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, Field, Tag, model_validator

from kindlm.config.expect import ExpectConfig
from kindlm.config.simulated_tools import McpToolsConfig, ServerToolsConfig, ToolConfig, ToolsEntry
from kindlm.section import (
    WHOLE,
    CommandLine,
    Extension,
    Maybe,
    Repeat,
    Score,
    Section,
    Text,
    by_form,
)
from kindlm.values import LIST, MAPPING, TEXT, refuse


class PromptConfig(Section):
    """The messages that begin a conversation; {{name}} stands for a variable of the test."""

    main = "user"

    system: Maybe[str] = Field(default=None, examples=["You serve {{shop}}."])
    """The system text."""
    system_file: Extension[Maybe[Text]] = Field(
        default=None,
        examples=["prompts/system.md"],
        validation_alias=AliasChoices("systemFile", "system_prompt_file"),
        serialization_alias="systemFile",
    )
    """File with the system text, relative to this file."""
    user: Maybe[Text] = Field(default=None, examples=["{{message}}"])
    """The user's first message. By default `{{input}}` if there is a system text; otherwise this or
    `userFile` is required."""
    user_file: Extension[Maybe[Text]] = Field(default=None, examples=["prompts/user.md"])
    """File with the user's text, relative to this file."""
    assistant: Maybe[str] = Field(default=None, examples=["{"])
    """Beginning of the answer, for the model to continue (Anthropic, Ollama)."""

    @model_validator(mode="after")
    def _one_source_each(self) -> PromptConfig:
        if self.user is None and self.user_file is None:
            raise refuse("a user text is missing", "Add `user:` or `userFile:`")
        for key in ("user", "system"):
            if {key, f"{key}_file"} <= self.model_fields_set:
                hint = "Remove one of them"
                raise refuse(f"cannot be combined with `{key}`", hint, key=f"{key}File")
        return self


class CallConfig(Section):
    """A tool call to a tested MCP server (`adapter: mcp`)."""

    main = "tool"

    tool: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default={}, examples=[{"order_id": "{{order_id}}"}])
    """Arguments of the call. In strings, {{name}} stands for a variable of the test."""


class TurnConfig(Section):
    """A further message of the user, sent after the answer to the one before."""

    main = "user"

    user: Maybe[Text] = Field(default=None, examples=["And now the other half, please."])
    """The user's message. {{name}} stands for a variable of the test. Required, unless there is a
    `call`."""
    call: Extension[Maybe[CallConfig]] = None
    """The next call of a test that begins with a `call`."""
    expect: ExpectConfig = Field(
        default=ExpectConfig(), examples=[{"output": {"contains": ["already refunded"]}}]
    )
    """Checks of the conversation up to the answer to this message."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> TurnConfig:
        if (self.user is None) == (self.call is None):
            raise refuse("must be set, or else `call`", "Write one of them", key="user")
        if "baseline" in self.expect.model_fields_set:
            message = "cannot have a `baseline`: that holds final answers only"
            raise refuse(message, "Move it to the `expect` of the test", key="expect")
        return self


class MessageConfig(Section):
    """A message, as in the APIs of models."""

    role: Literal["system", "user", "assistant"] = Field(examples=["user"])
    """Role of the sender. The agent answers messages of the `user`. A message of the `assistant`
    can only be the beginning of its answer."""
    content: Text = Field(examples=["Where is my order?"])
    """Text of the message."""


_ORDER = re.compile("s?(u+|ua)")


def messages_fit(roles: Iterable[str]) -> bool:
    """Return whether messages can be sent: an optional system text, then messages of the user.

    A single message of the user may be followed by the beginning of the answer.
    """
    known = {"system": "s", "user": "u", "assistant": "a"}
    return _ORDER.fullmatch("".join(known.get(role, "-") for role in roles)) is not None


def _in_order(messages: Any) -> Any:
    roles = [each.role if isinstance(each, MessageConfig) else "user" for each in messages]
    if not messages_fit(roles):
        raise refuse(
            "must hold messages of the user, which may follow one of the system",
            "Remove messages of the assistant: the agent under test writes these itself",
        )
    return messages


Input = Annotated[
    Annotated[Text, Tag(TEXT)]
    | Annotated[PromptConfig, Tag(MAPPING)]
    | Annotated[
        list[
            Annotated[
                Annotated[Text, Tag(TEXT)] | Annotated[MessageConfig, Tag(MAPPING)],
                by_form("must be text, or a mapping with `role` and `content`"),
            ]
        ],
        Field(min_length=1),
        AfterValidator(_in_order),
        Tag(LIST),
    ],
    by_form("must be text, a list of messages, or a mapping with `user`"),
]
"""The messages to the target: a text, a list of messages, or the keys of a prompt."""


_EXCLUSIVE = {
    "command": ("prompt", "prompts", "conversation"),
    "call": ("prompt", "prompts", "command"),
    "prompts": ("prompt",),
}
"""Keys of a test, each with those that cannot stand beside it."""


class TestConfig(Section):
    """A test: messages to a model, an agent or a program, and checks of its answers."""

    __test__ = False

    name: Text = Field(examples=["refunds-a-double-charge"])
    """Name of the test; unique in the suite."""
    input: Extension[Maybe[Input]] = Field(default=None, examples=["Where is my order A1?"])
    """Messages to the model or agent: a text; a list of messages, each a text or a mapping with
    `role` and `content`; or the keys of a prompt. If prompts or the `command` contain `{{input}}`,
    it is the value of that variable. Beside a `prompt` or a `command`, one of them must."""
    prompt: Maybe[Text] = Field(default=None, examples=["support"])
    """A key of `prompts`, in place of `input`."""
    prompts: Extension[Maybe[Annotated[list[Text], Field(min_length=1)]]] = Field(
        default=None, examples=[["formal", "casual"]]
    )
    """Keys of `prompts`. The test runs with each of them on each of its targets, and `[formal]` is
    added to its name. By default all prompts, or those with `{{input}}` if the test has an `input`.
    A test with `prompt`, `command` or `call` has none."""
    call: Extension[Maybe[CallConfig]] = None
    """Tool call that replaces the prompt, to test an MCP server."""
    vars: dict[str, str] = Field(default={}, examples=[{"message": "I was charged twice."}])
    """Variables for the prompt, the conversation and the command."""
    vars_from: Extension[Maybe[Text]] = Field(default=None, examples=["cases.csv"])
    """CSV or JSON Lines file, relative to this file. The test runs for each row. Columns are
    variables and override `vars`. `[id]` is added to the name: the column `id`, else the number of
    the row."""
    command: Extension[Maybe[CommandLine]] = Field(
        default=None, examples=["python agent.py --order {{order_id}}"]
    )
    """Program to test instead of a model or agent, in this file's folder. No shell runs it: kindlm
    splits the command into words and then inserts the variables. Its output is the answer, except
    for lines `{"kindlm": "tool_call", "name", "arguments"?, "response"?, "id"?}` and `{"kindlm":
    "output_json", "value"}`. A line that is nearly one of these stays text and gets a warning; it
    may be a forbidden call, so a test that forbids one is undecided. A call whose `arguments` are
    not an object gets a warning and counts."""
    reports_tools: Extension[Maybe[bool]] = Field(default=None, examples=[True])
    """The `command` reports every tool call, so a call that it does not report was not made. Any
    line of its output that is such a report shows this, too."""
    models: Maybe[list[str]] = Field(default=None, examples=[["gpt"]])
    """Ids of the models and agents to run on. By default all agents, or all models if there are no
    agents. Only tests with a `call` run on MCP servers (`adapter: mcp`)."""
    repeat: Maybe[Repeat] = Field(default=None, examples=[5])
    """Number of repeats on each target. By default `defaults.repeat`."""
    conversation: Extension[list[TurnConfig]] = Field(default=[])
    """The user's further messages, sent one after another."""
    tools: list[ToolsEntry] = Field(default=[], examples=[[{"name": "lookup_order"}]])
    """Simulated tools that the model can call, and tools of MCP servers (`mcp`)."""
    strict_tools: Extension[Maybe[bool]] = Field(default=None, examples=[True])
    """A call without a matching result, or with invalid arguments, fails the test. By default
    `defaults.strictTools`."""
    expect: ExpectConfig = Field(examples=[{"output": {"contains": ["refund"]}}])
    """Checks of the whole conversation. The output is the last answer."""
    tags: list[str] = Field(default=[], examples=[["smoke"]])
    """Tags to select the test by."""
    skip: bool = Field(default=False, examples=[True])
    """Skip the test. Reports show it as skipped."""
    pass_rate: Extension[Maybe[Score]] = Field(default=None, examples=[0.8])
    """Share of repeats that must pass. By default `defaults.passRate`. It tolerates failures, but
    not errors: a test with an errored repeat does not pass."""
    max_turns: Extension[Annotated[int, Field(ge=1, le=20), WHOLE]] = Field(
        default=10, examples=[12]
    )
    """Maximum number of model calls in a conversation."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> TestConfig:
        if self.input is not None:
            # `long_form` has moved a usable input into `prompts` or `vars`.
            raise refuse(
                "cannot be combined with the other messages of the test",
                "Write the messages into `conversation`, or `{{input}}` into the prompt and a text"
                " here",
                key="input",
            )
        for key, others in _EXCLUSIVE.items():
            both = (each for each in others if {key, each} <= self.model_fields_set)
            if (other := next(both, None)) is not None:
                raise refuse(f"cannot be combined with `{key}`", "Remove one of them", key=other)
        if self.reports_tools is not None and self.command is None:
            message = "applies to the `command` of a test, and this test has none"
            hint = "Move it to the agent in `agents`; models do not need it"
            raise refuse(message, hint, key="reportsTools")
        if any((turn.call is None) != (self.call is None) for turn in self.conversation):
            message = "must hold messages, or calls if the test has a `call`"
            raise refuse(message, "Write all as messages, or all as calls", key="conversation")
        return self

    @property
    def all_prompts(self) -> list[str]:
        """The names of its prompts."""
        return self.prompts or ([] if self.prompt is None else [self.prompt])

    @property
    def simulated(self) -> list[ToolConfig]:
        """The simulated tools."""
        return [each for each in self.tools if isinstance(each, ToolConfig)]

    @property
    def server_tools(self) -> list[McpToolsConfig]:
        """The tools of MCP servers."""
        return [each.mcp for each in self.tools if isinstance(each, ServerToolsConfig)]
