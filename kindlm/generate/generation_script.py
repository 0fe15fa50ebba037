"""The script of `kindlm gen`, which the engine runs: asks the agent and a model, writes tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kindlm.config import suite_identity
from kindlm.config.compile import canonical, config_hash
from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, broken, misuse
from kindlm.events.run import AgentProfiled, ScenarioGenerated
from kindlm.generate.questions import (
    Profile,
    Sources,
    in_calls,
    plan_question,
    profile_question,
    read_profile,
)
from kindlm.generate.suite_text import Comment, write_file, yaml_text
from kindlm.generate.test_plan import (
    TOOL_USE,
    Order,
    ReadPlan,
    in_turn,
    is_name,
    rendered,
    spoken,
    wanted,
)
from kindlm.model_answers import new_token, why_unread
from kindlm.packages import as_written
from kindlm.ports import Question, Stage
from kindlm.scenarios.configuration import JUDGE, LlmTable, language_model
from kindlm.secrecy import hide_headers, hide_in_options, hide_in_urls
from kindlm.section import resolved
from kindlm.suite import Case, Prompt, Suite
from kindlm.transcript import FinishReason
from kindlm.wording import count, shown

_NAME = "kindlm gen"
ANSWER_MS = 300_000
"""Time limit of an answer of the model, and of an agent without a limit of its own."""

_WHOLE_MS = 1_200_000


def generation_suite(order: Order, llm: LlmTable, project: str) -> Suite:
    """Return the suite of an order, with the model of `llm`, without its script."""
    providers, models = language_model(llm)
    prompt, agent = order.system_prompt, order.agent
    document = {
        "description": order.description,
        "systemPrompt": None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest(),
        "agent": None
        if agent is None
        else {
            "type": agent.adapter,
            "url": hide_in_urls(agent.endpoint),
            "headers": hide_headers(agent.headers),
            "options": hide_in_options(as_written(agent.options)),
        },
        "count": order.count,
        "categories": list(order.categories),
        "format": order.form,
        "seed": order.seed,
        "llm": resolved(llm),
    }
    text = canonical(document)
    case = Case(
        name="write tests",
        prompt=Prompt(user=""),
        targets=(JUDGE if order.agent is None else order.agent.id,),
        agent=order.agent,
    )
    return Suite(
        name=_NAME,
        project=project,
        front_end="generation",
        path=_NAME,
        config_hash=config_hash(text),
        config_text=text,
        providers=providers,
        models=models,
        cases=(case,),
        gates=(),
        judge_model=JUDGE,
        concurrency=1,
        timeout_ms=ANSWER_MS,
        execution_timeout_ms=_WHOLE_MS,
    )


T = TypeVar("T")

PROBES = (
    "Hello! What can you help me with?",
    "What do you need to know from me for that?",
    "Is there anything that you cannot do, or may not do?",
)
"""The questions to the agent before the planning. None could make it act."""

_LONGEST_ANSWER = 4_000
_TRIES = 2
_PROFILE_FILE = "agent-profile.yaml"


@dataclass(eq=False)
class GenerationScript:
    """Asks the agent and the model, and writes the files; implements `suite.Script`.

    Attributes:
        order: what to generate.
        model: the name of the planning model, for messages.
        redact: removes secrets from texts, since an agent may repeat the key that it was called
            with.
        tell: shows a message about the progress.
        files: the written files, each with what it is about; empty unless all were written.
        left_out: why other scenarios were left out.
        is_unheard: whether the agent did not answer.
    """

    order: Order
    model: str
    redact: Callable[[str], str]
    tell: Callable[[str], None]
    files: dict[Path, str] = field(default_factory=dict, init=False)
    left_out: Sequence[str] = field(default=(), init=False)
    is_unheard: bool = field(default=False, init=False)

    async def run(self, stage: Stage) -> KindlmError | None:
        """Write the tests; see `suite.Script`."""
        sources = await self._sources(stage)
        if isinstance(sources, Err):
            return sources.error
        self.tell(f"Asking {self.model} what the agent is for…")
        profile = await self._answer(
            stage,
            partial(profile_question, sources.value, self.order.seed),
            partial(read_profile, sources=sources.value),
        )
        if isinstance(profile, Err):
            return profile.error
        stage.record(AgentProfiled(profile=json.dumps(profile.value, ensure_ascii=False)))
        plan = await self._plan(stage, profile.value)
        if isinstance(plan, Err):
            return plan.error
        try:
            return self._write(stage, profile.value, plan.value)
        except OSError as error:
            message = f"The tests cannot be written: {error.strerror or error} ({error.filename})."
            return broken(message, "Name another folder: --output DIR")

    async def _sources(self, stage: Stage) -> Result[Sources]:
        order = self.order
        conversation: list[dict[str, Any]] = []
        if order.agent is not None:
            limit = (order.agent.timeout_ms or ANSWER_MS) / 1000
            self.tell(
                f"Asking the agent {len(PROBES)} things; {limit:g} s at most for each answer…"
            )
            for message in PROBES:
                answer = await stage.send(message)
                if isinstance(answer, Err):
                    self.is_unheard = True
                    return answer
                reply = answer.value[0]
                # Redact before cutting: the redactor does not recognise a part of a secret.
                answered = spoken(self.redact(reply.text), _LONGEST_ANSWER)
                names = (use.call.name for use in reply.tool_uses)
                known = [name for name in names if is_name(name) and self.redact(name) == name]
                exchange = {"asked": message, "answered": answered, "toolsCalled": known}
                conversation.append(exchange)
        description, prompt = (
            text and self.redact(text) for text in (order.description, order.system_prompt)
        )
        return Ok(Sources(description, prompt, conversation))

    async def _plan(self, stage: Stage, profile: Profile) -> Result[ReadPlan]:
        """Return the plan. If the agent has no known tools, it has no scenarios about tools."""
        order, tools = self.order, [tool["name"] for tool in profile["tools"]]
        self.tell(f"Planning {count(order.count, 'test')} with {self.model}…")
        categories = [name for name in order.categories if tools or name != TOOL_USE]
        if not categories:
            return Err(
                misuse(
                    "No tool of the agent is known, and scenarios of the category tool-use need"
                    " one.",
                    "Name its tools in --description, or give its --system-prompt.",
                )
            )
        plan = ReadPlan()
        for counts in in_calls(wanted(order.count, categories)):
            answer = await self._answer(
                stage,
                partial(plan_question, profile, counts, order.seed, plan.titles),
                partial(plan.read, categories=counts, tools=tools),
            )
            if isinstance(answer, Err):
                if not plan.scenarios:
                    return answer
                # Earlier answers were paid for: keep their scenarios.
                lost = f"{count(sum(counts.values()), 'scenario')} of {', '.join(counts)}"
                plan.left_out.append(f"{lost}: {answer.error.message}")
                break
        return Ok(plan)

    async def _answer(
        self, stage: Stage, question: Callable[[str], Question], read: Callable[[str], T]
    ) -> Result[T]:
        """Return what `read` makes of the model's answer; ask again once if that fails."""
        for _ in range(_TRIES):
            reply = await stage.ask(question(new_token()))
            if isinstance(reply, Err):
                return reply
            text, ending = self.redact(reply.value.text), reply.value.finish_reason
            try:
                return Ok(read(text))
            except ValueError as unread:
                why = why_unread(unread, ending)
            if ending is FinishReason.MAX_TOKENS:
                break  # The next answer would be cut off, too.
        return Err(
            KindlmError(
                ErrorCode.PROVIDER_API_ERROR,
                f"The model did not answer what it was asked: {why}. It answered {shown(text)}.",
                "Try again, with a smaller --count, or with another model: --model",
            )
        )

    def _write(self, stage: Stage, profile: Profile, plan: ReadPlan) -> KindlmError | None:
        order = self.order
        chosen = in_turn(plan.scenarios, order.categories, order.count)
        if not chosen:
            why = f" Left out: {'; '.join(plan.left_out[:3])}." if plan.left_out else ""
            return KindlmError(
                ErrorCode.PROVIDER_API_ERROR,
                f"The plan held no scenario that can be written.{why}",
                "Try again, say more of the agent with --description, or take another model:"
                " --model",
            )
        profile_file = write_file(
            order.folder / _PROFILE_FILE, profile_text(profile), force=order.force
        )
        written: dict[Path, str] = {}
        for scenario in chosen:
            name, text = rendered(scenario, order)
            path = write_file(order.folder / name, text, force=order.force, taken=written)
            stage.record(
                ScenarioGenerated(
                    file=suite_identity(path, order.root),
                    category=scenario.category,
                    title=scenario.title,
                    sha256=hashlib.sha256(text.encode()).hexdigest(),
                )
            )
            written[path] = f"{scenario.category}: {scenario.title}"
        self.files = {**written, profile_file: "what kindlm understood of the agent"}
        self.left_out = plan.left_out
        return None


def profile_text(profile: Profile) -> str:
    """Return a profile as YAML, for people."""
    about = "How kindlm gen understood the agent. To correct it, change the description you pass:"
    about += "\n--description, or --system-prompt."
    return yaml_text({Comment(about): None, **profile})
