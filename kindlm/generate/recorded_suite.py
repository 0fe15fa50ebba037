"""Makes a suite from recordings: one test for each, which must make the recorded tool calls.

A model gets the system text, the user's messages and the recorded tools, simulated by their
recorded results. An agent gets only the messages, and runs its own tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from kindlm.checks.guardrails import CANARY
from kindlm.dataclass import dataclass
from kindlm.document import texts
from kindlm.errors import Err, Ok, Result
from kindlm.generate.recordings import Recording
from kindlm.generate.suite_text import (
    BRACES,
    Comment,
    commented,
    literal,
    one_line,
    suite_text,
    suite_texts,
    unused,
)
from kindlm.matching import canonical
from kindlm.ports import ToolDefinition
from kindlm.scenarios.configuration import provider_by_name
from kindlm.suite import TOOL_PLACEHOLDER
from kindlm.telemetry.dialects import PROVIDERS
from kindlm.transcript import CANARY_TOKEN, UNNAMED, ToolCall, ToolUse, Transcript
from kindlm.values import filled
from kindlm_store import REDACTED

_CANARY = f"{{{{{CANARY}}}}}"
TODO = "TODO: say what a right answer does."

_MODEL_NAME = re.compile(r"[\w.:/@+-]+")
_LONGEST_NAME = 60
_LONGEST_ANSWER = 300

_Prompts: TypeAlias = Mapping[str | None, str]
"""The names of the suite's prompts by their system text."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the tests.

    Attributes:
        written: its keys in the suite, such as `agent`; None for the model of each recording.
        is_agent: whether it is an agent.
        model: the `provider/model` that the user named. It judges agents.
        why_not: why the target of the recording cannot be in the suite; None if it can.
    """

    written: dict[Any, Any] | None = None
    is_agent: bool = False
    model: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedSuites:
    """Suites as text, and the names of their tests.

    `unfinished` are the names of tests that are skipped until the user writes their criterion.
    `left_out` says why recordings have no test.
    """

    texts: list[str]
    names: list[str]
    unfinished: list[str]
    left_out: list[str]


def recorded_suites(
    recordings: Sequence[Recording], target: Target, origin: str, file: Path
) -> RecordedSuites:
    """Return suites of recordings, from which personal data and secrets were removed.

    `origin` describes the source of the recordings. `file` is the path of the suite.
    """
    write = partial(_text, target=target, origin=origin, file=file)
    tests, left_out = dict[str, Recording](), dict[str, None]()
    for recording in recordings:
        shown = one_line(recording.name, _LONGEST_NAME)
        name, why = unused(shown, tests, "{} ({})"), recording.missing
        why = why or _why_not(recording, target)
        if why is None and isinstance(alone := write([(name, recording)]), Err):
            why = alone.error.message
        if why is None:
            tests[name] = recording
        else:
            left_out[f"{shown}: {why}"] = None
    made = suite_texts([*tests.items()], write) if tests else Ok([])
    assert isinstance(made, Ok), "each alone can be loaded"
    unfinished = [name for name, each in tests.items() if _is_unfinished(each, target)]
    return RecordedSuites(made.value, list(tests), unfinished, list(left_out))


def _why_not(recording: Recording, target: Target) -> str | None:
    uses = recording.transcript.tool_uses
    if any(use.call.name in ("", UNNAMED) for use in uses):
        return "A tool call has no name."
    malformed = next((use.call.name for use in uses if use.call.malformed is not None), None)
    if malformed is not None and not _is_unfinished(recording, target):
        return f"The arguments of {malformed} are not a JSON object."
    if target.is_agent:
        return None
    if target.written is None and _model(recording) is None:
        if target.why_not is not None:
            return target.why_not
        named = f"{recording.provider or 'no provider'}, {recording.model or 'no model'}"
        return (
            f"kindlm cannot reach its model with the name alone ({named}). Pass --provider and"
            " --model, or --agent."
        )
    unknown = next((use for use in uses if use.response is None and use.rule == "agent"), None)
    if unknown is not None:
        return f"The result of {unknown.call.name} is not in it, so the tool cannot be simulated."
    results = [text for use in uses for _, text in texts(use.response, ())]
    filled_in = [found[0] for found in map(TOOL_PLACEHOLDER.search, results) if found]
    descriptions = [tool.description or "" for tool in recording.tools]
    filled_in += [_CANARY for text in (*results, *descriptions) if _CANARY in text]
    if filled_in:
        return f"A tool or its result contains {filled_in[0]}, which kindlm.yaml would fill in."
    return None


def _model(recording: Recording) -> str | None:
    """Return `provider/model` if kindlm can reach the model with that and a key."""
    provider = (recording.provider or "").lower()
    if _MODEL_NAME.fullmatch(recording.model or "") is None:
        return None
    for name in (PROVIDERS.get(provider, provider), provider.partition(".")[0]):
        if name and provider_by_name(name) is not None:
            return f"{name}/{recording.model}"
    return None


def _is_unfinished(recording: Recording, target: Target) -> bool:
    """Return whether the tool calls of a recording make no check: it failed, or has no tools."""
    can_call = target.is_agent or recording.tools or recording.transcript.tool_uses
    return recording.failed or not can_call


def _text(
    recordings: Sequence[tuple[str, Recording]], target: Target, origin: str, file: Path
) -> Result[str]:
    prompts: dict[str | None, str] = {}
    models: dict[str, None] = {}
    for _, recording in recordings:
        system = None if target.is_agent else recording.transcript.system
        number = len(prompts) + 1
        # A canary in the input needs a placeholder, which a variable cannot hold.
        if not CANARY_TOKEN.search(recording.transcript.turns[0].user):
            prompts.setdefault(system, "system" if number == 1 else f"system-{number}")
        models.setdefault(str(_model(recording)))
    document: dict[Any, Any] = {
        Comment(f"Written by `kindlm gen` from {origin}. Edit it as you like."): None,
        Comment(_ABOUT_AGENTS if target.is_agent else _ABOUT_MODELS): None,
        "kindlm": 1,
    }
    many = len(models) > 1 and target.written is None
    if target.written is not None:
        document |= target.written
    elif many:
        document["models"] = list(models)
    else:
        document["model"] = next(iter(models))
    if any(prompts):
        document["prompts"] = {
            name: {"user": "{{input}}"} if system is None else {"system": literal(system)}
            for system, name in prompts.items()
        }
    document["tests"] = [_test(name, each, target, prompts, many=many) for name, each in recordings]
    # The canary of the next run replaces recorded ones.
    with_canaries = filled(document, lambda text: CANARY_TOKEN.sub(_CANARY, text))
    return suite_text(with_canaries, file)


_ABOUT_MODELS = (
    "The tools are simulated: each call gets the result that equal arguments got when this was"
    "\nrecorded."
)
_ABOUT_AGENTS = (
    "The agent runs its own tools, and uses its own prompt. If kindlm cannot see its tool calls,"
    "\nadd `telemetry: otlp` or `gateway: true` to the agent."
)


def _test(
    name: str, recording: Recording, target: Target, prompts: _Prompts, *, many: bool
) -> dict[Any, Any]:
    transcript = recording.transcript
    test: dict[Any, Any] = {"name": name}
    if recording.tags:
        test["tags"] = list(recording.tags)
    test |= _input(transcript, None if target.is_agent else transcript.system, prompts)
    if not target.is_agent:
        if many:
            test["models"] = [_model(recording)]
        if tools := list(simulated_tools(recording.tools, transcript.tool_uses)):
            test |= {"tools": tools, "strictTools": True}
    if transcript.text.strip():
        test[Comment(f"The recorded answer: {one_line(transcript.text, _LONGEST_ANSWER)}")] = None
    if _is_unfinished(recording, target):
        return test | _to_finish(recording, target)
    return test | {"expect": {"trajectory": _trajectory(transcript)}}


def _input(transcript: Transcript, system: str | None, prompts: _Prompts) -> dict[Any, Any]:
    """Return the keys with the messages of a test."""
    first, *further = (turn.user for turn in transcript.turns)
    is_prompted = any(prompts) and not CANARY_TOKEN.search(first)
    written: dict[Any, Any] = {"input": literal(first)}
    if is_prompted:
        written = {"prompt": prompts[system], "input": first}
    elif system:
        written["input"] = {"system": literal(system), "user": literal(first)}
    if further:
        written["conversation"] = [{"user": literal(text)} for text in further]
    if any("{{" in text for text in (*further, system or "", "" if is_prompted else first)):
        written["vars"] = dict(BRACES)
    return written


def _to_finish(recording: Recording, target: Target) -> dict[Any, Any]:
    """Return the keys of a test that is skipped until the user writes its criterion."""
    judge = {"criteria": TODO}
    if target.is_agent:
        judge["model"] = target.model or _model(recording) or "PROVIDER/MODEL"
    expect: dict[Any, Any] = {"judge": [judge]}
    can_load = judge.get("model") != "PROVIDER/MODEL"
    test: dict[Any, Any] = {
        Comment("Write a criterion in place of TODO, then remove `skip`."): None
    }
    test |= {"skip": True, "expect": expect if can_load else {}}
    if not can_load:
        test[commented({"expect": expect})] = None
    if recording.transcript.tool_uses:
        below = expect if can_load else test
        below[Comment("The recorded calls, which may be wrong:")] = None
        below[commented({"trajectory": _trajectory(recording.transcript)})] = None
    return test


def _trajectory(transcript: Transcript) -> dict[str, Any]:
    """Return the recorded calls with their turns, in order; parallel calls in any order."""
    is_parallel = any(len(step.tool_uses) > 1 for step in transcript.steps)
    calls = list[dict[str, Any]]()
    for number, turn in enumerate(transcript.turns, 1):
        for step in turn.steps:
            for use in step.tool_uses:
                known = _known(use.call)
                call: dict[str, Any] = {"tool": use.call.name}
                if known:
                    call["argsMatch"] = known
                if len(known) == len(use.call.arguments):
                    call["argsExact"] = True
                if is_parallel and len(step.tool_uses) == 1:
                    call["order"] = len(calls)
                if len(transcript.turns) > 1:
                    call["turn"] = number
                calls.append(call)
    return {"mode": "unordered" if is_parallel else "strict", "calls": calls}


def _known(call: ToolCall) -> dict[str, Any]:
    """Return the arguments without removed secrets and canaries, which no model can repeat."""
    written = {key: canonical(value) for key, value in call.arguments.items()}
    return {
        key: call.arguments[key]
        for key, text in written.items()
        if REDACTED not in text and not CANARY_TOKEN.search(text)
    }


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def simulated_tools(
    definitions: Sequence[ToolDefinition], uses: Sequence[ToolUse]
) -> Iterator[dict[str, Any]]:
    """Yield the defined and the called tools, with their recorded results."""
    known = {tool.name: tool for tool in definitions}
    for name in dict.fromkeys([*known, *(use.call.name for use in uses)]):
        own_uses = [use for use in uses if use.call.name == name and use.call.malformed is None]
        tool: dict[str, Any] = {"name": name}
        definition = known.get(name)
        if definition is None:
            # The types of its arguments are those of recorded calls.
            properties: dict[str, Any] = {}
            for key, value in (pair for use in own_uses for pair in use.call.arguments.items()):
                kind = "object" if isinstance(value, dict) else _TYPES.get(type(value))
                if properties.setdefault(key, {"type": kind} if kind else {}) != {"type": kind}:
                    properties[key] = {}
            tool["parameters"] = {"type": "object", "properties": properties}
        else:
            if definition.description:
                tool["description"] = definition.description
            if definition.parameters:
                tool["parameters"] = dict(definition.parameters)
        responses = list(_responses(own_uses))
        if responses:
            tool["responses"] = responses
        yield tool


def _responses(uses: Sequence[ToolUse]) -> Iterator[dict[str, Any]]:
    """Yield responses. Those with more arguments come first, since `when` allows further ones."""
    equal: dict[str, list[ToolUse]] = {}
    for use in uses:
        equal.setdefault(canonical(_known(use.call)), []).append(use)
    for key in sorted(equal, key=len, reverse=True):
        then = [use.response for use in equal[key]]
        arguments = _known(equal[key][0].call)
        when = {"when": arguments} if arguments else {}
        if all(each == then[0] for each in then):
            yield when | {"then": then[0]}
        else:
            yield when | {"sequence": [{"then": each} for each in then]}
