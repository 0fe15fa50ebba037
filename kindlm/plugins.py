"""The base classes with which packages add checks, providers, adapters, frameworks and reports.

A package registers a subclass as an entry point, under the name that users write:

    [project.entry-points."kindlm.checks"]
    polite = "acme_kindlm:Polite"

Subclasses of `Check`, `Provider` and `Adapter` are pydantic models: their fields are the options in
kindlm.yaml. Types for fields are `Count`, `Maybe`, `Pattern`, `Positive`, `Score`, `Seconds`,
`Text`, `Url` and `Words`; a subclass of `Section` is a mapping. A validator that finds a wrong
value raises `refuse(…)`: kindlm then shows the message at the key in the file.

kindlm's own providers and adapters are subclasses of the same classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from string import Formatter
from typing import Any, ClassVar, Self

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.outcome import CheckResult, Demands, Evidence, Outcome
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    CheckContext,
    Embedder,
    Embedding,
    ModelClient,
    ModelReply,
    ModelRequest,
    Purpose,
    Question,
    Quota,
    ResponseSchema,
    ToolDefinition,
)
from kindlm.section import (
    Count,
    Maybe,
    Pattern,
    Positive,
    Score,
    Seconds,
    Section,
    Text,
    Url,
    Words,
)
from kindlm.spelling import Spelling
from kindlm.suite import AgentTarget, ModelParams
from kindlm.transcript import (
    FinishReason,
    Message,
    Role,
    Step,
    ToolCall,
    ToolUse,
    Transcript,
    Usage,
)
from kindlm.values import check_no_secret, check_url, refuse

__all__ = [
    "Access",
    "Adapter",
    "Agent",
    "AgentReply",
    "AgentRequest",
    "AgentTarget",
    "Check",
    "CheckContext",
    "CheckResult",
    "Count",
    "Demands",
    "Embedder",
    "Embedding",
    "Err",
    "ErrorCode",
    "Evidence",
    "FinishReason",
    "Framework",
    "KindlmError",
    "Maybe",
    "Message",
    "ModelClient",
    "ModelParams",
    "ModelReply",
    "ModelRequest",
    "Ok",
    "Outcome",
    "Pattern",
    "Positive",
    "Provider",
    "Purpose",
    "Question",
    "Quota",
    "Report",
    "ResponseSchema",
    "Result",
    "Role",
    "Score",
    "Seconds",
    "Section",
    "Step",
    "Text",
    "ToolCall",
    "ToolDefinition",
    "ToolUse",
    "Transcript",
    "Url",
    "Usage",
    "Words",
    "refuse",
]


def _result(outcome: Outcome, failure_code: str | None = None, **more: Any) -> CheckResult:
    """Return a result, which gets the kind and the label of its check later."""
    return CheckResult("", "", outcome, failure_code=failure_code, **more)


class Check(Section):
    """A check: a subclass has fields for its options, and decides whether a transcript passes.

    Users write it in `expect` under the name of its entry point, which is recorded as its kind.
    """

    group: ClassVar[str] = "kindlm.checks"
    reserved: ClassVar[frozenset[str]] = frozenset()
    about_tools: ClassVar[bool] = False
    """Whether it checks tool calls. It is undecided, and not run, if nothing shows that the target
    reports its calls."""
    demands: ClassVar[Demands] = Demands.SAFETY
    """What it demands: whether its failure means that an attack succeeded."""
    only_numbers: ClassVar[bool] = False
    """Whether its results only contain numbers that it measured. `redactPii` then leaves them
    unchanged, unless they are undecided."""

    def evaluate(
        self, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return `self.passed()`, `self.failed(…)` or `self.undecided(…)`.

        A check that asks a model is `async` and awaits `context.ask`. Other checks run in a thread
        and may take long.
        """
        raise NotImplementedError

    def passed(self, *, score: float = 1.0, actual: Any = None, message: str = "") -> CheckResult:
        """Return the result of a check that passes."""
        return _result(Outcome.PASSED, score=score, actual=actual, message=message)

    def failed(
        self,
        code: str,
        message: str,
        *,
        score: float = 0.0,
        expected: Any = None,
        actual: Any = None,
        evidence: tuple[Evidence, ...] = (),
    ) -> CheckResult:
        """Return the result of a check that fails; `code` names the reason, such as `RUDE`.

        Reports show it before the message. The failure code is `CUSTOM_CHECK_FAILED`.
        """
        found = {"score": score, "expected": expected, "actual": actual, "evidence": evidence}
        message = f"{code}: {message}"
        return _result(Outcome.FAILED, "CUSTOM_CHECK_FAILED", message=message, **found)

    def undecided(self, message: str, *, actual: Any = None) -> CheckResult:
        """Return the result of a check that can neither pass nor fail; the execution errors."""
        code = "ASSERTION_EVAL_ERROR"
        return _result(Outcome.INCONCLUSIVE, code, actual=actual, message=message)


@dataclass(frozen=True, slots=True)
class Access:
    """The address and the key of a provider.

    Attributes:
        base_url: `baseUrl` of the file, None if it is left out.
        key: The value of the variable that `apiKeyEnv` names.
        environ: The environment, including `.env` files.
        name: The user's name for the provider.
        key_variable: The variable that `apiKeyEnv` names.
        organization: `organization` of the file.
    """

    base_url: str | None
    key: str | None
    environ: Mapping[str, str]
    name: str = ""
    key_variable: str | None = None
    organization: str | None = None


class Provider(Section):
    """A provider of models: a subclass has fields for its options, and connects to the provider.

    Users write it in `providers` as `type: NAME`. `apiKeyEnv` and `baseUrl` are kindlm's own keys.
    """

    group: ClassVar[str] = "kindlm.providers"
    file_ending: ClassVar[str] = "_provider"
    reserved: ClassVar[frozenset[str]] = frozenset({"type", "apiKeyEnv", "baseUrl"})
    usual_key_variable: ClassVar[str | None] = None
    """The variable of the key if the file has neither `apiKeyEnv` nor `baseUrl`.

    If it is set, `apiKeyEnv` is required under the provider's own name, `baseUrl` under another."""
    usual_base_url: ClassVar[str | None] = None
    """The address if the file has no `baseUrl`, with `{name}` in place of an option.

    If it is set, these options are required, and neither `apiKeyEnv` nor `baseUrl`."""
    address_variable: ClassVar[str | None] = None
    """The variable with the address if the file has no `baseUrl`."""
    needs_base_url: ClassVar[bool] = False
    """Whether `baseUrl` is required."""
    takes_key: ClassVar[bool] = True
    """Whether it has a use for `apiKeyEnv`."""
    takes_seed: ClassVar[bool] = True
    """Whether it sends the seed of a model."""
    takes_prefill: ClassVar[bool] = False
    """Whether its models go on from a prefill."""
    embeds: ClassVar[bool] = False
    """Whether `embedder` returns an embedder. kindlm only asks its own providers for one."""
    wants_echo: ClassVar[bool] = False
    """Whether its models reject tool results without the `ModelReply.echo` of their calls.

    An echo is not recorded, so `--cache` does not reuse answers that call tools."""
    takes_placeholders: ClassVar[bool] = True
    """Whether `{{env.NAME}}` stands for a variable in its options."""

    @classmethod
    def address_options(cls) -> tuple[str, ...]:
        """Return the options that `usual_base_url` needs, in order."""
        parts = Formatter().parse(cls.usual_base_url or "")
        return tuple(dict.fromkeys(name for _, name, _, _ in parts if name))

    @classmethod
    def ambient_address(cls, environ: Mapping[str, str]) -> str | None:
        """Return the URL in `address_variable`, None if it is not set."""
        return environ.get(cls.address_variable or "") or None

    def connect(self, access: Access) -> ModelClient | Err:
        """Return the client for all calls of a run. Its `complete` makes one call, without retries.

        For settings that it cannot use, return `Err(KindlmError)`: every call then has this error.
        """
        raise NotImplementedError

    def embedder(self, access: Access) -> Embedder:
        """Return the client that turns text into vectors; only called if `embeds` is set."""
        raise NotImplementedError


class Adapter(Section):
    """An agent adapter: a subclass has fields for its options, and opens conversations.

    Users write it in `agents` as `adapter: NAME`. Keys that all agents have are kindlm's own.
    """

    group: ClassVar[str] = "kindlm.agents"
    file_ending: ClassVar[str] = "_agent"
    reserved: ClassVar[frozenset[str]] = frozenset(
        {"id", "adapter", "type", "endpoint", "url", "timeoutMs", "reportsTools", "verbose"}
        | {"headers", "gateway", "telemetry", "telemetryWaitMs"}
    )
    other_names: ClassVar[Mapping[str, str]] = {}
    """Aliases that users may write, each with the name that is recorded."""
    needs_endpoint: ClassVar[bool] = False
    takes_headers: ClassVar[bool] = True
    asks_for_tools: ClassVar[bool] = False
    """Whether the caller runs the agent's tools: the test simulates them."""
    starts_program: ClassVar[bool] = False
    """Whether it starts a program for each conversation, with the environment that `open` gets,
    which includes the gateway's variables for `gateway: true`."""
    system_text_hint: ClassVar[str] = "Use a prompt without it"
    """The hint for users if `sends_system_text` is false."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent | Err:
        """Return the agent for one conversation; it connects in its `__aenter__`.

        `target` has the keys that all agents have, `environ` is the environment, including `.env`
        files. If it returns an error, every message gets this error.
        """
        raise NotImplementedError

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Raise `refuse(…)` for an endpoint that is not valid.

        By default, it checks http URLs and refuses secrets: other endpoints may have any form.
        """
        if endpoint.startswith(("http://", "https://")):
            check_url(endpoint)
        else:
            check_no_secret(endpoint)

    def wants_endpoint(self) -> bool:
        """Return whether the agent cannot be reached without an endpoint."""
        return self.needs_endpoint

    def sends_system_text(self) -> bool:
        """Return whether the agent gets the system text of a prompt."""
        return True

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:  # noqa: ARG002
        """Yield keys that have no effect with the other options, even if the user left them out.

        With each key come the condition and a hint, in the `spelling` of the user's file.
        """
        yield from ()

    def advice(
        self,
        endpoint: str,  # noqa: ARG002
        environ: Mapping[str, str],  # noqa: ARG002
    ) -> Iterator[tuple[str, str, str]]:
        """Yield warnings about an agent: a code, a message, and a hint."""
        yield from ()

    def compiled(self) -> Self:
        """Return the options in the form in which they are used, before variables are resolved."""
        return self


class Framework:
    """A framework for agents in Python: a subclass talks to its agents and reads their results.

    Its name is the package of the framework's types, with `_` for dots: `pydantic_ai`,
    `google_adk`. It is created without arguments, once for each conversation, and may keep state
    between messages.
    """

    group: ClassVar[str] = "kindlm.frameworks"
    takes_system: ClassVar[bool] = False
    """Whether `send` passes on the system text of a conversation, if there is one."""
    takes_context: ClassVar[bool] = False
    """Whether `send` passes on the context of a message."""

    def is_agent(self, value: Any) -> bool:  # noqa: ARG002
        """Return whether `send` can talk to an object of one of the package's types."""
        return False

    def turn(self, agent: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002
        """Return a context that is held while an agent answers; waiting for it is not timed.

        It is a lock if conversations that share an agent have to take turns.
        """
        return nullcontext()

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        """Send the last message of a request to an agent, and return its result, for `read`.

        It runs in the event loop of the run. An exception makes the execution errored.
        """
        raise NotImplementedError

    async def read(self, result: Any, sent: str) -> AgentReply | None:
        """Return the reply to the message `sent` in a result; None if it is no result.

        A result is from `send` or from a user's function, which may also return a part of one, or
        yield its parts: they come as a list. An exception makes the execution errored. A
        `latency_ms` of 0 stands for the time of `send` and `read`.
        """
        raise NotImplementedError


class Report:
    """A report: a subclass turns a recorded run into text or bytes.

    It is created without arguments; its name is that of its entry point.
    """

    group: ClassVar[str] = "kindlm.reports"

    def render(self, run: Mapping[str, Any]) -> str | bytes:
        """Return the report; `run` is the JSON report (docs/how-to/reports.md).

        Its text is from models, agents and users: escape it for the format.
        """
        raise NotImplementedError
