"""The schema of kindlm.yaml: names, types, ranges and defaults.

Keys are camelCase in YAML and snake_case here. Unknown keys, nulls and values of another type are
errors, but 3.0 is an integer, since JSON has one kind of number. `references` checks references to
prompts, models and files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    Tag,
    model_validator,
)

from kindlm.config.expect import ExpectConfig
from kindlm.config.simulated_tools import McpToolsConfig, ServerToolsConfig, ToolConfig, ToolsEntry
from kindlm.config.target_schema import (
    AgentConfig,
    ModelConfig,
    PriceConfig,
    ProviderConfig,
    ServeConfig,
)
from kindlm.section import (
    WHOLE,
    CommandLine,
    Concurrency,
    Count,
    Extension,
    Maybe,
    Milliseconds,
    Pattern,
    Positive,
    Repeat,
    Score,
    Section,
    Text,
    Url,
    by_form,
)
from kindlm.values import LIST, MAPPING, TEXT, not_bool, refuse

MAX_TESTS = 1_000
MAX_MODELS = 50


def _with_other_spelling(schema: dict[str, Any]) -> None:
    """Publish `system_prompt_file`, the name of `systemFile` in the error specification."""
    properties = schema["properties"]
    properties["system_prompt_file"] = {
        **properties["systemFile"],
        "description": "The same as `systemFile`.",
        "deprecated": True,
    }


class SuiteConfig(Section):
    """Name and tags of the suite."""

    main = "name"

    name: Text = Field(examples=["support"])
    """Name of the suite in reports and baselines. By default that of the file."""
    description: Maybe[str] = Field(default=None, examples=["What the support agent must do"])
    """Description of the suite."""
    tags: list[str] = Field(default=[], examples=[["support"]])
    """Tags of all tests in the suite."""


class PromptConfig(Section):
    """The messages that begin a conversation; {{name}} stands for a variable of the test."""

    main = "user"

    model_config = ConfigDict(json_schema_extra=_with_other_spelling)

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
        if self.user is not None and self.user_file is not None:
            raise refuse("`user` and `userFile` cannot be combined", "Remove one of them")
        if self.system is not None and self.system_file is not None:
            raise refuse("`system` and `systemFile` cannot be combined", "Remove one of them")
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


class MessageConfig(Section):
    """A message, as in the APIs of models."""

    role: Literal["system", "user", "assistant"] = Field(examples=["user"])
    """Role of the sender. The agent answers messages of the `user`. A message of the `assistant`
    can only be the beginning of its answer."""
    content: Text = Field(examples=["Where is my order?"])
    """Text of the message."""


_ORDER = re.compile("s?(u+|ua)")


def messages_fit(roles: Iterable[str]) -> bool:
    """Tell whether messages can be sent: an optional system text, then messages of the user.

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
                by_form("must be a text, or a mapping with `role` and `content`"),
            ]
        ],
        Field(min_length=1),
        AfterValidator(_in_order),
        Tag(LIST),
    ],
    by_form("must be a text, a list of messages, or a mapping with `user`"),
]
"""The messages to the target: a text, a list of messages, or the keys of a prompt."""


class TestConfig(Section):
    """A test: messages to a model, an agent or a program, and checks of its answers."""

    __test__ = False

    name: Text = Field(examples=["refunds-a-double-charge"])
    """Name of the test; unique in the suite."""
    input: Extension[Maybe[Input]] = Field(default=None, examples=["Where is my order A1?"])
    """Messages to the model or agent: a text; a list of messages, each a text or a mapping with
    `role` and `content`; or the keys of a prompt. If prompts or the `command` contain `{{input}}`,
    it is the value of that variable."""
    prompt: Maybe[Text] = Field(default=None, examples=["support"])
    """A key of `prompts`, in place of `input`."""
    prompts: Extension[Maybe[list[Text]]] = Field(default=None, examples=[["formal", "casual"]])
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
            # `absent_keys` has moved a usable input into `prompts` or `vars`.
            raise refuse(
                "`input` does not go with what else the test says",
                "Write the messages into `conversation`, or `{{input}}` into the prompt and a text"
                " here",
                key="input",
            )
        if self.prompt is not None and self.prompts is not None:
            raise refuse("`prompt` and `prompts` cannot be combined", "Remove one of them")
        return self

    @property
    def all_prompts(self) -> list[str]:
        """The names of its prompts."""
        return self.prompts or ([] if self.prompt is None else [self.prompt])

    @property
    def simulated(self) -> dict[int, ToolConfig]:
        """The simulated tools, by their positions among all."""
        return {at: it for at, it in enumerate(self.tools) if isinstance(it, ToolConfig)}

    @property
    def server_tools(self) -> list[McpToolsConfig]:
        """The tools of MCP servers."""
        return [each.mcp for each in self.tools if isinstance(each, ServerToolsConfig)]


class GatesConfig(Section):
    """Limits over the whole suite. They decide the exit code."""

    pass_rate_min: Score = Field(default=0.95, examples=[0.9])
    """Minimum share of executions that pass. If you write it, it decides how many failures are
    tolerated."""
    schema_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of outputs that violate their schema."""
    judge_avg_min: Maybe[Score] = Field(default=None, examples=[0.8])
    """Minimum mean score of all criteria."""
    drift_score_max: Maybe[Score] = Field(default=None, examples=[0.15])
    """Maximum drift of any test."""
    pii_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of outputs with personal data."""
    keyword_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of keyword violations."""
    cost_max_usd: Maybe[Positive] = Field(default=None, examples=[2.5])
    """Maximum US dollars for the suite, with judges. Then kindlm makes no further call."""
    latency_max_ms: Maybe[Positive] = Field(default=None, examples=[8000])
    """Maximum mean latency of an execution, in milliseconds."""


class ComplianceMetadata(Section):
    """Details of the system under test, for the compliance report."""

    system_name: Maybe[str] = Field(default=None, examples=["ACME Support Agent"])
    """Name of the system."""
    system_version: Maybe[str] = Field(default=None, examples=["2.1.0"])
    """Tested version."""
    risk_level: Maybe[Literal["high", "limited", "minimal"]] = Field(
        default=None, examples=["limited"]
    )
    """Risk class of the system."""
    operator: Maybe[str] = Field(default=None, examples=["ACME Corp"])
    """Operator of the system."""
    intended_purpose: Maybe[str] = Field(default=None, examples=["Answers order inquiries"])
    """Purpose of the system."""
    data_governance_notes: Maybe[str] = Field(default=None, examples=["No customer data is kept"])
    """How the system handles its data."""


class ComplianceConfig(Section):
    """The compliance report."""

    enabled: bool = Field(default=False, examples=[True])
    """Write the report after a run."""
    framework: Literal["eu-ai-act", "custom"] = Field(default="eu-ai-act", examples=["custom"])
    """Structure of the report. `custom` needs a template."""
    template: Extension[Maybe[str]] = Field(default=None, examples=["reports/template.md"])
    """Markdown template with Jinja placeholders, for the framework `custom`: see [Evidence for
    audits](../how-to/compliance.md)."""
    output_dir: str = Field(default="./compliance-reports", examples=["reports"])
    """Folder for the reports, relative to this file."""
    metadata: Maybe[ComplianceMetadata] = None
    """Details of the system for the report."""


NO_SERVER = "https://api.kindlm.com/v1"
"""The default of `apiUrl`, which nothing is ever sent to."""


class UploadConfig(Section):
    """Sending runs to the history server of a team."""

    enabled: bool = Field(default=False, examples=[False])
    """Send each run while it goes on, as `kindlm test --push` does. Needs `apiUrl`."""
    include_artifacts: bool = Field(default=False, examples=[False])
    """Also send content: prompts, answers, tool calls. By default, content stays here."""
    redact_patterns: list[Pattern] = Field(default=[], examples=[[r"\bC-\d{6}\b"]])
    """Regular expressions. Content that one of them matches is never sent."""
    api_url: Url = Field(default=NO_SERVER, examples=["https://history.example.com/v1"])
    """Address of your history server. Nothing is sent to the default."""


class DefaultsConfig(Section):
    """Defaults of all tests."""

    repeat: Repeat = Field(default=1, examples=[3])
    """Number of repeats of a test on each of its targets."""
    concurrency: Concurrency = Field(default=4, examples=[8])
    """Number of executions at the same time."""
    timeout_ms: Milliseconds = Field(default=60_000, examples=[30_000])
    """Time limit of one call to a provider, an agent or a command, in milliseconds."""
    judge_model: Maybe[str] = Field(default=None, examples=["judge"])
    """Id of the model that judges. By default the first model."""
    retries: Extension[Annotated[int, Field(ge=0, le=10), WHOLE]] = Field(default=2, examples=[0])
    """Number of retries of a failed call."""
    pass_rate: Extension[Score] = Field(default=1.0, examples=[0.8])
    """Share of a test's repeats that must pass."""
    execution_timeout_ms: Extension[Milliseconds] = Field(default=300_000, examples=[120_000])
    """Time limit of a whole execution, in milliseconds. Waits that a provider asks for do not
    count."""
    strict_tools: Extension[bool] = Field(default=False, examples=[True])
    """A call to a simulated tool must have a matching result and valid arguments."""


class RecordConfig(Section):
    """Settings of the recording."""

    redact_pii: bool = Field(default=False, examples=[True])
    """Redact personal data before it is recorded."""
    raw_bodies: bool = Field(default=True, examples=[False])
    """Record the bodies of answers byte for byte."""


class KindlmConfig(Section):
    """A kindlm test suite."""

    kindlm: Annotated[Literal[1], BeforeValidator(not_bool)] = Field(examples=[1])
    """Version of this format; 1 by default."""
    project: Text = Field(examples=["acme-support"])
    """The project of the suite. By default `project` of kindlm.toml, else the name of the remote
    repository, else that of the folder."""
    suite: SuiteConfig
    """Name of the suite. By default that of the file; for a `kindlm.yaml`, that of its folder."""
    providers: dict[str, ProviderConfig] = Field(
        default={}, examples=[{"openai": {"apiKeyEnv": "OPENAI_API_KEY"}}]
    )
    """How to reach models, by name: a `type`, or a name of your own with a `type`. A type that
    needs no more than its usual key needs no entry."""
    models: Annotated[list[ModelConfig], Field(max_length=MAX_MODELS)] = Field(
        default=[], examples=[[{"id": "gpt", "provider": "openai", "model": "gpt-4o"}]]
    )
    """Models to test, and judges. Required unless the suite tests only agents or commands. `model`
    takes a single one."""
    agents: Extension[Annotated[list[AgentConfig], Field(max_length=MAX_MODELS)]] = Field(
        default=[],
        examples=[[{"id": "shop", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"}]],
    )
    """Live agents to test. With agents, a test runs on models only if its `models` names them.
    `agent` takes a single one: `agent: http://localhost:8000/chat`."""
    prompts: dict[str, PromptConfig] = Field(
        default={}, examples=[{"support": {"user": "{{message}}"}}]
    )
    """The messages that begin conversations, by name, for tests without an `input`."""
    tests: Annotated[list[TestConfig], Field(min_length=1, max_length=MAX_TESTS)] = Field(
        examples=[[{"name": "greets", "prompt": "support", "expect": {}}]]
    )
    """The tests."""
    gates: GatesConfig = GatesConfig()
    """Limits over the whole suite. They decide the exit code."""
    compliance: Maybe[ComplianceConfig] = None
    """The compliance report."""
    upload: UploadConfig = UploadConfig()
    """Sending runs to the history server of a team."""
    defaults: DefaultsConfig = DefaultsConfig()
    """Defaults of all tests."""
    serve: Extension[list[ServeConfig]] = Field(default=[])
    """Programs to start before the tests."""
    prices: Extension[dict[str, PriceConfig]] = Field(
        default={}, examples=[{"my-model": {"input": 0.5, "output": 1.5}}]
    )
    """Prices by model, in addition to the built-in ones or instead of them. kindlm looks for the
    model name that the provider reports, else for the one in `models`. For an agent that names no
    model with a price, use its id; for a command, `command`."""
    record: Extension[RecordConfig] = RecordConfig()
    """Settings of the recording."""
