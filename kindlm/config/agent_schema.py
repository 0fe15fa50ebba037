"""The `agents` section: live agents as targets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, ConfigDict, Field

from kindlm.config.target_schema import CommandLine
from kindlm.section import Maybe, Milliseconds, Open, Text

_WITHOUT_ENDPOINT = [
    {
        "properties": {key: {"enum": ["openai-assistants", "openai-assistant", "subprocess"]}},
        "required": [key],
    }
    for key in ("adapter", "type")
]


def _with_other_names(schema: dict[str, Any]) -> None:
    """Publish `type` and `url`, which mean the same as `adapter` and `endpoint`."""
    properties = schema["properties"]
    for name, other in (("type", "adapter"), ("url", "endpoint")):
        properties[name] = {**properties[other], "description": f"The same as `{other}`."}
    schema["required"] = ["id"]
    schema["allOf"] = [
        {"anyOf": [{"required": ["adapter"]}, {"required": ["type"]}]},
        {"anyOf": [{"required": ["endpoint"]}, {"required": ["url"]}, *_WITHOUT_ENDPOINT]},
    ]


class AgentConfig(Open):
    """A live agent that is tested."""

    model_config = ConfigDict(json_schema_extra=_with_other_names)

    id: Text = Field(examples=["shop"])
    """Your name for this agent, used in reports."""
    adapter: Text = Field(
        validation_alias=AliasChoices("adapter", "type"),
        serialization_alias="adapter",
        examples=["http"],
    )
    """How it is talked to: `http`, `langgraph`, `crewai`, `openai-assistants`, `tapescope` or
    `streaming`, each with a wire format of its own; `subprocess` for a program; or `python` for
    code that is called directly. That code runs in processes of its own, each for one conversation
    at a time; what a process has imported is kept for the next one. Code and programs have the
    environment of the run, `.env` included. `openai-assistant` and `jsonl` are other names of
    `openai-assistants` and `tapescope`."""
    endpoint: Maybe[Text] = Field(
        default=None,
        validation_alias=AliasChoices("endpoint", "url"),
        serialization_alias="endpoint",
        examples=["http://127.0.0.1:8000/chat"],
    )
    """Its URL; for `python` its `package.module:name`. Required, except for `openai-assistants`
    and `subprocess`.
    Like all texts of an agent, it may hold
    {{env.NAME}} and {{serve.NAME.port}}. A
    password or key in it belongs into the environment: it is refused where it is written out."""
    timeout_ms: Maybe[Milliseconds] = Field(default=None, examples=[120_000])
    """Milliseconds for one answer; those of `defaults.timeoutMs` by default."""
    reports_tools: Maybe[bool] = Field(default=None, examples=[True])
    """It reports every tool call that it makes. Checks of calls that were not made need this where
    its answers do not show it: see [Agents](agents.md)."""
    verbose: bool = Field(default=False, examples=[True])
    """Write what is sent to it and what comes back into the log."""
    headers: dict[str, str] = Field(
        default={}, examples=[{"Authorization": "Bearer {{env.SHOP_TOKEN}}"}]
    )
    """HTTP headers. Credentials belong into the environment: {{env.NAME}}."""
    request: Maybe[Literal["message", "messages", "query"]] = Field(
        default=None, examples=["messages"]
    )
    """Form of the JSON body (`http`): the new message, which is the default; all messages, which
    is the only form that has the system text; or `query` and `context`."""
    body: Any = Field(default=None, examples=[{"input": {"text": "{{message}}"}}])
    """Template of the JSON body instead (`http`), with {{message}}, {{messages}}, {{system}} and
    {{conversation_id}}."""
    response_path: Maybe[Text] = Field(default=None, examples=["data.reply.text"])
    """Where the text is in the answer. By default it is looked for under its usual names: message,
    text, content, response, output, result, answer, or choices[0].message.content. Where none of
    them is there, the answer is an error, unless it holds tool calls alone; `$` takes all of it as
    its text."""
    tool_calls_path: Maybe[Text] = Field(default=None, examples=["data.steps"])
    """Where the tool calls are in the answer. By default they are looked for likewise."""
    mode: Maybe[Literal["standard", "streaming", "cloud"]] = Field(default=None, examples=["cloud"])
    """How the graph is served (`langgraph`): by a server of yours that answers with one value or
    with a stream, or by LangGraph's own. By default that is `cloud` if `endpoint` has the port 2024
    or `/threads` in its path, else `streaming` with `streaming: true`, else `standard`."""
    streaming: Maybe[bool] = Field(default=None, examples=[True])
    """Whether it answers with a stream: false by default for `langgraph`, true for `tapescope`
    and `streaming`."""
    assistant_id: Maybe[Text] = Field(default=None, examples=["agent"])
    """The assistant that is asked (`langgraph` in the mode `cloud`, where it is `agent` by default;
    `openai-assistants`, where it is that of the variable OPENAI_ASSISTANT_ID)."""
    input_key: Maybe[Text] = Field(default=None, examples=["question"])
    """Where the graph takes the message in its input (`langgraph` in the mode `cloud`), if it takes
    no `messages`."""
    graph_config: Maybe[dict[str, Any]] = Field(default=None, examples=[{"recursion_limit": 50}])
    """The `config` of the graph's runs (`langgraph` in the mode `cloud`)."""
    path: Maybe[Text] = Field(default=None, examples=["src"])
    """Folder that the module is imported from (`python`), relative to this file; what is not there
    is looked for in the root of the project. The folder of this file by default."""
    command: Maybe[CommandLine] = Field(default=None, examples=["python agent.py"])
    """The program and its arguments (`subprocess`, which requires it). No shell: split as a shell
    would, or given as a list."""
    one_shot: Maybe[bool] = Field(default=None, examples=[True])
    """Whether the program is started anew for each message (`subprocess`): it gets the message
    where `command` has {{message}}, else as its input, and prints its answer as text. There are
    {{messages}}, {{system}} and {{conversation_id}}, too. By default one program answers a whole
    conversation, in lines of JSON."""
    env: Maybe[dict[str, str]] = Field(default=None, examples=[{"MODE": "test"}])
    """Environment variables for the program (`subprocess`), beside those of the run. In a sandbox
    they are all it has of them."""
    cwd: Maybe[Text] = Field(default=None, examples=["agent"])
    """Folder that the program runs in (`subprocess`), relative to this file; in a sandbox, relative
    to the folder that its snapshot begins in. The folder of this file by default."""
    sandbox: Maybe[Literal["local", "daytona"]] = Field(default=None, examples=["daytona"])
    """Where the program runs (`subprocess`): on this machine, which is the default, or in a sandbox
    of Daytona (the extra `kindlm[daytona]`), one for each conversation. Where none can be made,
    there is a warning, and the program runs on this machine."""
    snapshot: Maybe[Text] = Field(default=None, examples=["shop-agent"])
    """The snapshot of Daytona that sandboxes are made of (`subprocess` with `sandbox: daytona`);
    the program has to be in it. That of the account by default."""
