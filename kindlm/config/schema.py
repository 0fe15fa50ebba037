"""The shape of kindlm.yaml: names, types, ranges and defaults.

camelCase in YAML, snake_case here. Strict: unknown keys, nulls where nothing may be empty, and
values of another type are errors; the only leniency is that 3.0 is an integer, since JSON has one
kind of number. What refers to something else (prompts, models, files) is checked in `references`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from kindlm.config.expect import ExpectConfig
from kindlm.config.left_out import messages_fit
from kindlm.config.simulated_tools import McpToolsConfig, ServerToolsConfig, ToolConfig, ToolsEntry
from kindlm.config.target_schema import (
    AgentConfig,
    ModelConfig,
    PriceConfig,
    ProviderConfig,
    ServeConfig,
)
from kindlm.section import (
    EXTENSION,
    WHOLE,
    CommandLine,
    Concurrency,
    Count,
    Maybe,
    Milliseconds,
    Pattern,
    Positive,
    Repeat,
    Score,
    Section,
    Text,
    Url,
)
from kindlm.values import LIST, MAPPING, TEXT, form_of, not_bool, refuse

MAX_TESTS = 1_000
MAX_MODELS = 50


def _with_other_spelling(schema: dict[str, Any]) -> None:
    """Publish `system_prompt_file`, the error specification's name of `systemFile`."""
    properties = schema["properties"]
    properties["system_prompt_file"] = {
        **properties["systemFile"],
        "description": "The same as `systemFile`.",
        "deprecated": True,
    }


class SuiteConfig(Section):
    """What the suite is called."""

    main = "name"

    name: Text = Field(examples=["support"])
    """Name of the suite, in reports and for baselines; that of the file by default."""
    description: Maybe[str] = Field(default=None, examples=["What the support agent must do"])
    """What the suite is about."""
    tags: list[str] = Field(default=[], examples=[["support"]])
    """Every test of the suite has these tags too."""


class PromptConfig(Section):
    """The messages that open a conversation; {{name}} stands for a variable of the test."""

    main = "user"

    model_config = ConfigDict(json_schema_extra=_with_other_spelling)

    system: Maybe[str] = Field(default=None, examples=["You serve {{shop}}."])
    """The system text."""
    system_file: Maybe[Text] = Field(
        default=None,
        examples=["prompts/system.md"],
        validation_alias=AliasChoices("systemFile", "system_prompt_file"),
        serialization_alias="systemFile",
        json_schema_extra=EXTENSION,
    )
    """File with the system text, relative to this file."""
    user: Maybe[Text] = Field(default=None, examples=["{{message}}"])
    """What the user says first; `{{input}}` by default beside a system text. Else this or
    `userFile` is required."""
    user_file: Maybe[Text] = Field(
        default=None, examples=["prompts/user.md"], json_schema_extra=EXTENSION
    )
    """File with the user's text, relative to this file."""
    assistant: Maybe[str] = Field(default=None, examples=["{"])
    """The beginning of the answer, which the model continues (Anthropic, Ollama)."""

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
    """A tool call of an MCP server that is tested (`adapter: mcp`)."""

    main = "tool"

    tool: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default={}, examples=[{"order_id": "{{order_id}}"}])
    """What it is called with; in texts, {{name}} stands for a variable of the test."""


class TurnConfig(Section):
    """A further message of the user, sent after the answer to the one before."""

    main = "user"

    user: Maybe[Text] = Field(default=None, examples=["And now the other half, please."])
    """What the user says; {{name}} stands for a variable of the test. Required, unless there is a
    `call`."""
    call: Maybe[CallConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """The next call of a test that begins with a `call`."""
    expect: ExpectConfig = Field(
        default=ExpectConfig(), examples=[{"output": {"contains": ["already refunded"]}}]
    )
    """Looks at the conversation up to the answer to this message."""


class MessageConfig(Section):
    """A message, as the APIs of models have it."""

    role: Literal["system", "user", "assistant"] = Field(examples=["user"])
    """Who says it. The agent under test answers messages of the `user`; a message of the
    `assistant` can only be the beginning of its answer."""
    content: Text = Field(examples=["Where is my order?"])
    """What is said."""


def _in_order(messages: Any) -> Any:
    said = [each.role if isinstance(each, MessageConfig) else "user" for each in messages]
    if not messages_fit(said):
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
                Discriminator(
                    form_of,
                    custom_error_type="refused",
                    custom_error_message="must be a text, or a mapping with `role` and `content`",
                ),
            ]
        ],
        Field(min_length=1),
        AfterValidator(_in_order),
        Tag(LIST),
    ],
    Discriminator(
        form_of,
        custom_error_type="refused",
        custom_error_message="must be a text, a list of messages, or a mapping with `user`",
    ),
]
"""What is said to the target: a text, messages, or the keys of a prompt."""


class TestConfig(Section):
    """One test: what is said to a model, an agent or a program, and what is expected of it."""

    __test__ = False

    name: Text = Field(examples=["refunds-a-double-charge"])
    """Name of the test; unique in the suite."""
    input: Maybe[Input] = Field(
        default=None, examples=["Where is my order A1?"], json_schema_extra=EXTENSION
    )
    """What is said to the model or agent: a text; a list of messages, each a text or a mapping
    with `role` and `content`; or the keys of a prompt. Where prompts, or the `command`, have the
    variable `{{input}}`, it is that variable."""
    prompt: Maybe[Text] = Field(default=None, examples=["support"])
    """A key of `prompts`, in place of `input`."""
    prompts: Maybe[list[Text]] = Field(
        default=None, examples=[["formal", "casual"]], json_schema_extra=EXTENSION
    )
    """Keys of `prompts`: the test runs with each of them on each of its targets, and `[formal]` is
    added to its name. Without `prompt`, `command` and `call`, it runs with all prompts by default,
    and with an `input`, with those that have `{{input}}`."""
    call: Maybe[CallConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """The tool call, in place of a prompt, where an MCP server is tested."""
    vars: dict[str, str] = Field(default={}, examples=[{"message": "I was charged twice."}])
    """Variables for the prompt, the conversation and the command."""
    vars_from: Maybe[Text] = Field(
        default=None, examples=["cases.csv"], json_schema_extra=EXTENSION
    )
    """CSV or JSON Lines file, relative to this file: the test becomes one for each row, and the
    columns are variables, before those of `vars`. `[id]` is added to the name: the column `id`,
    else the number of the row."""
    command: Maybe[CommandLine] = Field(
        default=None,
        examples=["python agent.py --order {{order_id}}"],
        json_schema_extra=EXTENSION,
    )
    """A program that is tested instead of a model or agent, in this file's folder. No shell: it is
    split into words, and then variables are put into these. What it prints is its answer, but for
    lines `{"kindlm": "tool_call", "name", "arguments"?, "response"?, "id"?}` and
    `{"kindlm": "output_json", "value"}`; a line that is nearly one of these stays text, gets a
    warning, and may be a call that a test forbids: such a test is undecided. A call whose
    `arguments` are not an object gets a warning and counts as a call."""
    reports_tools: Maybe[bool] = Field(default=None, examples=[True], json_schema_extra=EXTENSION)
    """The `command` reports every tool call that it makes, so that one that it did not report was
    not made. A line of its output that is a report shows that, too."""
    models: Maybe[list[str]] = Field(default=None, examples=[["gpt"]])
    """Ids of the models and agents it runs on. By default all agents, or all models if there are no
    agents. MCP servers (`adapter: mcp`) are agents of tests with a `call`, and of no others."""
    repeat: Maybe[Repeat] = Field(default=None, examples=[5])
    """How often it runs on each of them; `defaults.repeat` by default."""
    conversation: list[TurnConfig] = Field(default=[], json_schema_extra=EXTENSION)
    """What the user says after the first answer, message by message."""
    tools: list[ToolsEntry] = Field(default=[], examples=[[{"name": "lookup_order"}]])
    """Simulated tools that the model can call, and tools of MCP servers (`mcp`)."""
    strict_tools: Maybe[bool] = Field(default=None, examples=[True], json_schema_extra=EXTENSION)
    """A call that no answer is meant for, or that breaks its schema, fails the test;
    `defaults.strictTools` by default."""
    expect: ExpectConfig = Field(examples=[{"output": {"contains": ["refund"]}}])
    """What is expected of the whole conversation; the output is the last answer."""
    tags: list[str] = Field(default=[], examples=[["smoke"]])
    """What it can be selected by."""
    skip: bool = Field(default=False, examples=[True])
    """Leave it out for now; reports show it as skipped."""
    pass_rate: Maybe[Score] = Field(default=None, examples=[0.8], json_schema_extra=EXTENSION)
    """Share of its repeats that must pass; `defaults.passRate` by default. It tolerates failures,
    no errors: where a repeat errors, the test does not pass."""
    max_turns: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(
        default=10, examples=[12], json_schema_extra=EXTENSION
    )
    """Most model calls in one conversation."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> TestConfig:
        if self.input is not None:
            # What can be used has been put into `prompts` or `vars`.
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
    """Conditions on the suite as a whole."""

    pass_rate_min: Score = Field(default=0.95, examples=[0.9])
    """Least share of executions that pass. Written, it decides how many failures are tolerated."""
    schema_failures_max: Count = Field(default=0, examples=[0])
    """Most outputs that break their schema."""
    judge_avg_min: Maybe[Score] = Field(default=None, examples=[0.8])
    """Least mean score of all criteria."""
    drift_score_max: Maybe[Score] = Field(default=None, examples=[0.15])
    """Largest drift of any test."""
    pii_failures_max: Count = Field(default=0, examples=[0])
    """Most outputs with personal data."""
    keyword_failures_max: Count = Field(default=0, examples=[0])
    """Most violations of keywords."""
    cost_max_usd: Maybe[Positive] = Field(default=None, examples=[2.5])
    """Most US dollars for the suite, judges included. Once exceeded, no further call
    is made."""
    latency_max_ms: Maybe[Positive] = Field(default=None, examples=[8000])
    """Largest mean latency of an execution, in milliseconds."""


class ComplianceMetadata(Section):
    """What the compliance report says about the system under test."""

    system_name: Maybe[str] = Field(default=None, examples=["ACME Support Agent"])
    """What the system is called."""
    system_version: Maybe[str] = Field(default=None, examples=["2.1.0"])
    """Which version is tested."""
    risk_level: Maybe[Literal["high", "limited", "minimal"]] = Field(
        default=None, examples=["limited"]
    )
    """Its class of risk."""
    operator: Maybe[str] = Field(default=None, examples=["ACME Corp"])
    """Who runs it."""
    intended_purpose: Maybe[str] = Field(default=None, examples=["Answers order inquiries"])
    """What it is for."""
    data_governance_notes: Maybe[str] = Field(default=None, examples=["No customer data is kept"])
    """How its data is handled."""


class ComplianceConfig(Section):
    """The compliance report."""

    enabled: bool = Field(default=False, examples=[True])
    """Write the report after a run."""
    framework: Literal["eu-ai-act", "custom"] = Field(default="eu-ai-act", examples=["custom"])
    """What the report is arranged by; custom needs a template."""
    template: Maybe[str] = Field(
        default=None, examples=["reports/template.md"], json_schema_extra=EXTENSION
    )
    """Markdown with placeholders of Jinja, for the framework `custom`: see
    [Evidence for audits](../how-to/compliance.md)."""
    output_dir: str = Field(default="./compliance-reports", examples=["reports"])
    """Folder for the reports, relative to this file."""
    metadata: Maybe[ComplianceMetadata] = None
    """What it says about the system."""


class UploadConfig(Section):
    """Uploading of results."""

    enabled: bool = Field(default=False, examples=[False])
    """Upload after a run."""
    include_artifacts: bool = Field(default=False, examples=[False])
    """Upload prompts and outputs too."""
    redact_patterns: list[Pattern] = Field(default=[], examples=[[r"\bC-\d{6}\b"]])
    """What is made unreadable before."""
    api_url: Url = Field(default="https://api.kindlm.com/v1", examples=["https://example.com/v1"])
    """Where to."""


class DefaultsConfig(Section):
    """What holds for every test that does not say otherwise."""

    repeat: Repeat = Field(default=1, examples=[3])
    """How often a test runs on each of its targets."""
    concurrency: Concurrency = Field(default=4, examples=[8])
    """How many executions run at once."""
    timeout_ms: Milliseconds = Field(default=60_000, examples=[30_000])
    """Milliseconds for one call to a provider, an agent or a command."""
    judge_model: Maybe[str] = Field(default=None, examples=["judge"])
    """Id of the model that judges; the first model by default."""
    retries: Annotated[int, Field(ge=0, le=10), WHOLE] = Field(
        default=2, examples=[0], json_schema_extra=EXTENSION
    )
    """How often a call that failed is tried again."""
    pass_rate: Score = Field(default=1.0, examples=[0.8], json_schema_extra=EXTENSION)
    """Share of a test's repeats that must pass."""
    execution_timeout_ms: Milliseconds = Field(
        default=300_000, examples=[120_000], json_schema_extra=EXTENSION
    )
    """Milliseconds for one whole execution. Waits that a provider asks for do not count."""
    strict_tools: bool = Field(default=False, examples=[True], json_schema_extra=EXTENSION)
    """Calls of simulated tools must meet an answer that is meant for them, and keep their
    schema."""


class RecordConfig(Section):
    """What is recorded."""

    redact_pii: bool = Field(default=False, examples=[True])
    """Make personal data unreadable before it is recorded."""
    raw_bodies: bool = Field(default=True, examples=[False])
    """Keep what providers and agents answered, byte for byte."""


class KindlmConfig(Section):
    """A kindlm test suite."""

    kindlm: Annotated[Literal[1], BeforeValidator(not_bool)] = Field(examples=[1])
    """Version of this format; 1 by default."""
    project: Text = Field(examples=["acme-support"])
    """What the suite belongs to; by default `project` of kindlm.toml, else the name of the remote
    repository, else that of the folder."""
    suite: SuiteConfig
    """What the suite is called; by default the name of the file, or of the folder that has a
    `kindlm.yaml`."""
    providers: dict[str, ProviderConfig] = Field(
        default={}, examples=[{"openai": {"apiKeyEnv": "OPENAI_API_KEY"}}]
    )
    """How to reach models, by name: `openai`, `anthropic`, `ollama`, `scripted`, or a name of your
    own with a `type`. The first three need no entry."""
    models: Annotated[list[ModelConfig], Field(max_length=MAX_MODELS)] = Field(
        default=[], examples=[[{"id": "gpt", "provider": "openai", "model": "gpt-4o"}]]
    )
    """The models that are tested, or that judge. Required unless only agents or commands are
    tested. A single one may stand under `model`."""
    agents: Annotated[list[AgentConfig], Field(max_length=MAX_MODELS)] = Field(
        default=[],
        examples=[[{"id": "shop", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"}]],
        json_schema_extra=EXTENSION,
    )
    """The live agents that are tested. With agents, tests run on models only where their `models`
    names them. A single one may stand under `agent`: `agent: http://localhost:8000/chat`."""
    prompts: dict[str, PromptConfig] = Field(
        default={}, examples=[{"support": {"user": "{{message}}"}}]
    )
    """The messages that open conversations, by name, for tests without an `input`."""
    tests: Annotated[list[TestConfig], Field(min_length=1, max_length=MAX_TESTS)] = Field(
        examples=[[{"name": "greets", "prompt": "support", "expect": {}}]]
    )
    """The tests."""
    gates: GatesConfig = GatesConfig()
    """Conditions on the suite as a whole."""
    compliance: Maybe[ComplianceConfig] = None
    """The compliance report."""
    upload: UploadConfig = UploadConfig()
    """Uploading of results."""
    defaults: DefaultsConfig = DefaultsConfig()
    """What holds for every test that does not say otherwise."""
    serve: list[ServeConfig] = Field(default=[], json_schema_extra=EXTENSION)
    """Programs to start before the tests."""
    prices: dict[str, PriceConfig] = Field(
        default={},
        examples=[{"my-model": {"input": 0.5, "output": 1.5}}],
        json_schema_extra=EXTENSION,
    )
    """Prices by model, beside or instead of the built-in ones: by the name that the provider
    reports, else by that in `models`. An agent goes by its id, a command by `command`, unless they
    name a model that has a price."""
    record: RecordConfig = Field(default=RecordConfig(), json_schema_extra=EXTENSION)
    """What is recorded."""
