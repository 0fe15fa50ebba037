"""A generation as the engine takes it: a suite with one case, whose script writes the files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from kindlm.config.canonical import config_hash, resolved
from kindlm.config.credentials import hide_headers, hide_in_options
from kindlm.config.url_secrets import hide_in_urls
from kindlm.generate.order import Order
from kindlm.scenarios.compile import JUDGE, language_model
from kindlm.scenarios.configuration import LlmTable
from kindlm.suite import AgentTarget, Case, Prompt, Script, Suite

__all__ = ["ANSWER_MS", "generation_suite", "with_script"]

_NAME = "kindlm gen"
ANSWER_MS = 300_000
"""How long an answer of the model may take, and of an agent that has no limit of its own."""

_WHOLE_MS = 1_200_000


def generation_suite(order: Order, llm: LlmTable, project: str) -> Suite:
    """Return the suite of an order, with the model of `llm`; it has no script yet."""
    providers, models = language_model(llm)
    text = _config_text(order, llm)
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


def with_script(suite: Suite, script: Script) -> Suite:
    """Return the suite of an order as it is run: with what writes the files."""
    return replace(suite, cases=tuple(replace(case, script=script) for case in suite.cases))


def _config_text(order: Order, llm: LlmTable) -> str:
    """Return what was asked for in canonical JSON, without credentials."""
    prompt = order.system_prompt
    document = {
        "description": order.description,
        "systemPrompt": None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest(),
        "agent": None if order.agent is None else _agent(order.agent),
        "count": order.count,
        "categories": list(order.categories),
        "format": order.form,
        "seed": order.seed,
        "llm": resolved(llm),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _agent(agent: AgentTarget) -> dict[str, object]:
    return {
        "type": agent.adapter,
        "url": hide_in_urls(agent.endpoint),
        "headers": hide_headers(agent.headers),
        "options": hide_in_options(agent.options),
    }
