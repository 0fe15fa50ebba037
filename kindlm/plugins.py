"""The base classes with which packages add checks, providers, agent adapters and reports.

A package registers a class in an entry point, whose name is what users write:

    [project.entry-points."kindlm.checks"]
    polite = "acme_kindlm:Polite"

The class is a subclass of `Check`, `Provider`, `Adapter`, `Framework` or `Report`. The first three
are pydantic models: their fields are the options that users write in kindlm.yaml, and one method
does the work.
`Count`, `Maybe`, `Pattern`, `Positive`, `Score`, `Seconds`, `Text`, `Url` and `Words` are types for
fields, and so is a subclass of `Section` for a mapping in them. A validator raises what `refuse`
returns: the message then stands at the key in the file.
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


class Check(Section):
    """A check: a subclass has fields for its options, and says whether a transcript passes.

    It stands in `expect` under the name of its entry point, which is recorded as its kind.
    """

    group: ClassVar[str] = "kindlm.checks"
    reserved: ClassVar[frozenset[str]] = frozenset()
    about_tools: ClassVar[bool] = False
    """Whether it is about tool calls. It is undecided, and not run, where nothing shows that the
    target reports its calls."""
    demands: ClassVar[Demands] = Demands.SAFETY
    """What it demands: whether its failure means that an attack succeeded."""
    only_numbers: ClassVar[bool] = False
    """Whether its results hold nothing but numbers that it measured. `redactPii` then leaves them
    as they are, unless they are undecided."""

    def evaluate(
        self, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return `self.passed()`, `self.failed(…)` or `self.undecided(…)`.

        A check that asks a model is `async` and awaits `context.ask`. Any other check runs in a
        thread, so that it may take long.
        """
        raise NotImplementedError

    def passed(self, *, score: float = 1.0, actual: Any = None, message: str = "") -> CheckResult:
        """Return that the check passes."""
        return CheckResult("", "", Outcome.PASSED, score=score, actual=actual, message=message)

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
        """Return that the check fails; `code` is a stable name for the reason, such as `RUDE`.

        Reports show it before the message. Their failure code is `CUSTOM_CHECK_FAILED`.
        """
        return CheckResult(
            "",
            "",
            Outcome.FAILED,
            score=score,
            expected=expected,
            actual=actual,
            failure_code="CUSTOM_CHECK_FAILED",
            message=f"{code}: {message}",
            evidence=evidence,
        )

    def undecided(self, message: str, *, actual: Any = None) -> CheckResult:
        """Return that the check can neither pass nor fail; the execution is then errored."""
        return CheckResult(
            "",
            "",
            Outcome.INCONCLUSIVE,
            actual=actual,
            failure_code="ASSERTION_EVAL_ERROR",
            message=message,
        )


@dataclass(frozen=True, slots=True)
class Access:
    """What a provider is reached with.

    `base_url` is what the file says: None if it says nothing, even if the class has an address.
    `key` is the value of the variable that `apiKeyEnv` names, and `environ` the environment with
    what `.env` files say. `name` is the user's name for the provider, `key_variable` what
    `apiKeyEnv` names, `organization` the key of that name.
    """

    base_url: str | None
    key: str | None
    environ: Mapping[str, str]
    name: str = ""
    key_variable: str | None = None
    organization: str | None = None


class Provider(Section):
    """A provider of models: a subclass has fields for its options, and connects to the provider.

    It stands in `providers` as `type: NAME`. `apiKeyEnv` and `baseUrl` are kindlm's own keys.
    """

    group: ClassVar[str] = "kindlm.providers"
    file_ending: ClassVar[str] = "_provider"
    reserved: ClassVar[frozenset[str]] = frozenset({"type", "apiKeyEnv", "baseUrl"})
    usual_key_variable: ClassVar[str | None] = None
    """The variable of the key where the file names no variable and no `baseUrl`.

    A provider with one requires `apiKeyEnv` under its own name, and `baseUrl` under another."""
    usual_base_url: ClassVar[str | None] = None
    """Its address where the file names no `baseUrl`, with `{name}` in the place of an option.

    A provider with one requires these options, and neither `apiKeyEnv` nor `baseUrl`."""
    address_variable: ClassVar[str | None] = None
    """The variable with its address where the file names no `baseUrl`."""
    needs_base_url: ClassVar[bool] = False
    """Whether `baseUrl` is required."""
    takes_key: ClassVar[bool] = True
    takes_seed: ClassVar[bool] = True
    takes_prefill: ClassVar[bool] = False
    embeds: ClassVar[bool] = False
    """Whether `embedder` returns one."""
    wants_echo: ClassVar[bool] = False
    """Whether its client puts into `ModelReply.echo` what its models want back.

    `kindlm test --cache` asks again then, where an answer calls tools: no echo is recorded."""
    takes_placeholders: ClassVar[bool] = True
    """Whether `{{env.NAME}}` stands for a variable in its options."""

    @classmethod
    def address_options(cls) -> tuple[str, ...]:
        """Return the options that `usual_base_url` needs, in order."""
        parts = Formatter().parse(cls.usual_base_url or "")
        return tuple(dict.fromkeys(name for _, name, _, _ in parts if name))

    @classmethod
    def ambient_address(cls, environ: Mapping[str, str]) -> str | None:
        """Return the URL that `address_variable` stands for, None if it is not set."""
        return environ.get(cls.address_variable or "") or None

    def connect(self, access: Access) -> ModelClient | Err:
        """Return the client for all calls of a run; `complete` makes one, without retries.

        Return `Err(KindlmError)` for settings that it cannot use: every call then has this error.
        """
        raise NotImplementedError

    def embedder(self, access: Access) -> Embedder:
        """Return what turns texts into vectors; only called if `embeds` is set."""
        raise NotImplementedError


class Adapter(Section):
    """An agent adapter: a subclass has fields for its options, and opens conversations.

    It stands in `agents` as `adapter: NAME`. The keys of all agents are kindlm's own.
    """

    group: ClassVar[str] = "kindlm.agents"
    file_ending: ClassVar[str] = "_agent"
    reserved: ClassVar[frozenset[str]] = frozenset(
        {"id", "adapter", "type", "endpoint", "url", "timeoutMs", "reportsTools", "verbose"}
        | {"headers", "gateway", "telemetry", "telemetryWaitMs"}
    )
    other_names: ClassVar[Mapping[str, str]] = {}
    """Further names that users may write for it, each with the name that is recorded."""
    needs_endpoint: ClassVar[bool] = False
    takes_headers: ClassVar[bool] = True
    asks_for_tools: ClassVar[bool] = False
    """Whether the agent leaves it to its caller to run its tools: the test simulates them."""
    starts_program: ClassVar[bool] = False
    """Whether it starts a program for each conversation, with the variables that `open` gets: of
    the gateway, if the agent has `gateway: true`."""
    system_text_hint: ClassVar[str] = "Use a prompt without it"
    """What to do where `sends_system_text` is false."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent | Err:
        """Return the agent for one conversation; nothing is connected before its `__aenter__`.

        `target` has the keys of all agents, `environ` the environment with what `.env` files say.
        An error is the answer to every message.
        """
        raise NotImplementedError

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Raise what `refuse` returns if the agent cannot be at an endpoint.

        By default, only an http URL has a form: an endpoint may be `tcp://127.0.0.1:9000`, too.
        """
        if endpoint.startswith(("http://", "https://")):
            check_url(endpoint)
        else:
            check_no_secret(endpoint)

    def wants_endpoint(self) -> bool:
        """Tell whether the agent cannot be reached without an endpoint."""
        return self.needs_endpoint

    def prints_calls(self) -> bool:
        """Tell whether the agent is a program that reports its tool calls in lines it prints."""
        return False

    def sends_system_text(self) -> bool:
        """Tell whether the agent gets the system text of a prompt."""
        return True

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:  # noqa: ARG002
        """Yield keys that mean nothing beside the other options, whether they are written or not.

        Each comes with where it means nothing, and with what to do; both use the `spelling` of the
        user's file.
        """
        yield from ()

    def advice(
        self,
        endpoint: str,  # noqa: ARG002
        environ: Mapping[str, str],  # noqa: ARG002
    ) -> Iterator[tuple[str, str, str]]:
        """Yield warnings about an agent: a reason for programs, a message, and what to do."""
        yield from ()

    def compiled(self) -> Self:
        """Return the options as they are used, before variables are put in."""
        return self


class Framework:
    """A framework for agents in Python: a subclass talks to its agents and reads their results.

    Its name is the package that the framework's types are from, with `_` in the place of a dot:
    `pydantic_ai`, `google_adk`. So kindlm finds it without importing anything. It is created
    without arguments, once for each conversation: it keeps what the next message needs.
    """

    group: ClassVar[str] = "kindlm.frameworks"
    takes_system: ClassVar[bool] = False
    """Whether `send` passes on the system text of a conversation, if there is one."""
    takes_context: ClassVar[bool] = False
    """Whether `send` passes on the context of a message."""

    def is_agent(self, value: Any) -> bool:  # noqa: ARG002
        """Tell whether `send` can talk to an object. Its type or a base of it is of the package."""
        return False

    def turn(self, agent: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002
        """Return what is held while an agent answers; waiting for it is no part of the answer.

        That is a lock where conversations that share an agent have to take turns.
        """
        return nullcontext()

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        """Send the last message of a request to an agent, and return its result, for `read`.

        It runs in the event loop of the run. What it raises makes the execution errored.
        """
        raise NotImplementedError

    async def read(self, result: Any, sent: str) -> AgentReply | None:
        """Return what a result says that answers the message `sent`; None if it is none.

        A result comes from `send`, or from a function of the user, who may also return a part of
        one, or yield its pieces: these come as a list. What it raises makes the execution errored.
        A `latency_ms` of 0 stands for the time that `send` and `read` took.
        """
        raise NotImplementedError


class Report:
    """A report: a subclass turns a recorded run into text or bytes. Its name is the entry point's.

    It is created without arguments.
    """

    group: ClassVar[str] = "kindlm.reports"

    def render(self, run: Mapping[str, Any]) -> str | bytes:
        """Return the report; `run` is the document of the JSON report: docs/how-to/reports.md.

        Texts in it are what models, agents and users wrote: escape them for the format.
        """
        raise NotImplementedError
