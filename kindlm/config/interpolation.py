"""Fills in placeholders `{{name}}`; inserted values are never expanded again.

`render` fills in the variables of a test when the suite is loaded. `bind` fills in environment
variables and ports when it runs. In between, their placeholders are marked with a noncharacter that
no loaded text can contain. So a variable with the value `{{env.SECRET}}` stays that text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

from kindlm.checks.base import Check
from kindlm.checks.guardrails import CANARY
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse
from kindlm.packages import CRASHES, as_written, is_own, options_of_package, own
from kindlm.plugins import Adapter, Provider
from kindlm.suite import FORWARDED, AgentTarget, Case, Service, Suite
from kindlm.values import filled
from kindlm.wording import first_of

MARK = "\ufdd0"

DEFERRED_PREFIXES = ("env.", "serve.", CANARY)
"""Prefixes of the names that are filled in at run time; variables of a test cannot have them."""

_PLACEHOLDER = re.compile(r"\{\{([\w.]+)\}\}")
_MARKED = re.compile(MARK + r"\{\{([\w.]+)\}\}")


def is_deferred(name: str) -> bool:
    """Return whether a placeholder is filled in at run time."""
    return name.startswith(DEFERRED_PREFIXES)


def names_in(template: str) -> list[str]:
    """Return the names of all placeholders in a text, each once, in order."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(template)))


def render(template: str, variables: Mapping[str, str]) -> str:
    """Insert the variables of a test, and mark the placeholders that are left for run time.

    Every name must have a value: `check_templates` has reported the others.
    """

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return MARK + match[0] if is_deferred(name) else variables[name]

    return _PLACEHOLDER.sub(replacement, template)


def bound_names(rendered: str) -> list[str]:
    """Return the names that a rendered text still needs, each once."""
    return list(dict.fromkeys(_MARKED.findall(rendered)))


def bind(rendered: str, lookup: Callable[[str], str]) -> str:
    """Fill in the placeholders that `render` marked."""
    return _MARKED.sub(lambda match: lookup(match[1]), rendered)


def insert(template: str, lookup: Callable[[str], str]) -> str:
    """Fill in environment variables and ports in a text that was not rendered, such as a URL."""
    return _PLACEHOLDER.sub(
        lambda match: lookup(match[1]) if is_deferred(match[1]) else match[0], template
    )


T = TypeVar("T")

MAX_PLACES = 3
"""The most places that an error lists for a variable."""

_NOT_SET = "missing_environment"


@dataclass(slots=True)
class _Values:
    """Looks up values by name, and collects the places of names without a value in `missing`."""

    environ: Mapping[str, str]
    ports: Mapping[str, int] | None
    required: bool = True
    canary: str | None = None
    missing: dict[str, dict[str, None]] = field(default_factory=dict)
    place: str = ""
    faults: list[KindlmError] = field(default_factory=list)

    def __call__(self, name: str) -> str:
        kind, _, rest = name.partition(".")
        value: str | int | None
        may_stay = not self.required
        if name == CANARY:
            value, may_stay = self.canary, True
        elif kind == "serve":
            value = (self.ports or {}).get(rest.removesuffix(".port"))
            may_stay |= self.ports is None
        else:
            value = self.environ.get(rest)
        if value is not None:
            return str(value)
        if may_stay:
            return f"{{{{{name}}}}}"
        self.missing.setdefault(name, {})[self.place] = None
        return ""

    def at(self, place: str) -> Self:
        """Set the place that errors name for the texts to come."""
        self.place = place
        return self

    def bind(self, text: str) -> str:
        """Fill in a text that `render` returned."""
        return bind(text, self)

    def insert(self, text: str) -> str:
        """Fill in a text that was not rendered."""
        return insert(text, self)


def bind_suite(
    suite: Suite,
    *,
    environ: Mapping[str, str],
    ports: Mapping[str, int] | None,
    selected: Mapping[str, Collection[str]] | None = None,
    required: bool = True,
    canary: str | None = None,
) -> Result[Suite]:
    """Return the suite with environment variables, ports and the canary filled in.

    Only the selected cases that are not skipped, and the models, providers and agents that they
    use, are filled in. The others stay, so their variables need no values.

    `ports` are those of the services by name; None before they start. `selected` has the targets
    of each selected case by its name, by default all. Placeholders stay without ports or a canary,
    and so do variables without a value unless they are `required`: then they are one error.
    """
    values = _Values(environ, ports, required, canary)
    if selected is None:
        selected = {case.name: case.targets for case in suite.cases}
    used = {
        case.name: case for case in suite.cases if not case.skip and selected.get(case.name, ())
    }
    targets = {target for name in used for target in selected[name]}
    needed = _used_providers(suite, used.values(), targets)
    targets |= {tools.server for case in used.values() for tools in case.server_tools}
    providers = dict(suite.providers)
    for name in providers.keys() & needed:
        values.at(f"providers.{name}.baseUrl")
        item = _filled(providers[name], values.insert, "base_url")
        if (options := item.options) is not None and options.takes_placeholders:
            values.at(f"providers.{name}")
            item = replace(item, options=_bind_options(options, values))
        providers[name] = item
    agents = {
        name: _bind_agent(agent, values.at(f"agents.{name}")) if name in targets else agent
        for name, agent in suite.agents.items()
    }
    cases = tuple(_bind_case(case, values) if case.name in used else case for case in suite.cases)
    models = dict(suite.models)
    for name in models.keys() & targets:
        models[name] = _filled(models[name], values.at(f"models.{name}").bind, "model")
    if values.missing:
        return Err(_missing(suite, values.missing))
    if values.faults:
        return Err(values.faults[0])
    return Ok(replace(suite, providers=providers, models=models, agents=agents, cases=cases))


def bind_services(suite: Suite, *, environ: Mapping[str, str]) -> Result[tuple[Service, ...]]:
    """Return the services to start, with environment variables filled in.

    Ports stay as placeholders, since each is known only when its service starts.
    """
    values = _Values(environ, None)
    names = ("command", "ready_url", "ready_line", "env")
    services = tuple(
        _filled(each, values.at(f"serve.{each.name}").insert, *names) for each in suite.services
    )
    return Err(_missing(suite, values.missing)) if values.missing else Ok(services)


def unset_variables(suite: Suite, environ: Mapping[str, str]) -> Iterator[KindlmError]:
    """Yield the errors of variables without a value that a run of the whole suite would report."""
    bound = bind_suite(suite, environ=environ, ports=None)
    for result in (bind_services(suite, environ=environ), bound):
        if isinstance(result, Err) and result.error.details.get("reason") == _NOT_SET:
            yield result.error


def _used_providers(suite: Suite, cases: Collection[Case], targets: Collection[str]) -> set[str]:
    used = {suite.models[model].provider for model in targets if model in suite.models}
    if any(agent.gateway for agent in suite.all_agents()):
        # An agent may call any of these through the gateway.
        used |= {item.name for item in suite.providers.values() if item.type in FORWARDED}
    if any(case.script is not None for case in cases) and (judge := suite.judge()) is not None:
        # A script may ask the judge.
        used.add(judge.provider)
    # Cases of one test share their expectations, however many rows it has.
    for expectations in {id(case.expectations): case.expectations for case in cases}.values():
        for expectation in expectations:
            check: Check = expectation.check
            if check.asks_judge:
                judge = suite.judge(check.judge_model)
                used |= set() if judge is None else {judge.provider}
            elif check.embeds:
                # Which provider embeds depends on their keys.
                kinds = [(item, own(Provider, item.type)) for item in suite.providers.values()]
                used |= {item.name for item, kind in kinds if kind is not None and kind.embeds}
    return used


def _bind_case(case: Case, values: _Values) -> Case:
    sent = ("prompt", "follow_ups", "contexts", "command")
    bound = _filled(case, values.at(f'test "{case.name}"').bind, *sent)
    if case.tools and (canary := values.canary) is not None:
        # Nothing else is filled in in tools.
        mark, texts = f"{{{{{CANARY}}}}}", ("description", "default", "answers")
        tools = [_filled(it, lambda text: text.replace(mark, canary), *texts) for it in case.tools]
        bound = replace(bound, tools=tuple(tools))
    if case.agent is not None:
        bound = replace(bound, agent=_bind_agent(case.agent, values))
    expected = [(it, it.check.filled(values.bind, values.insert)) for it in case.expectations]
    if any(check is not item.check for item, check in expected):
        filled_in = tuple(replace(item, check=check) for item, check in expected)
        bound = replace(bound, expectations=filled_in)
    # A suite of many rows is not copied for nothing.
    return case if bound == case else replace(bound, written=case)


def _bind_agent(agent: AgentTarget, values: _Values) -> AgentTarget:
    agent = _filled(agent, values.insert, "endpoint", "headers", "model")
    options = agent.options
    return agent if options is None else replace(agent, options=_bind_options(options, values))


def _bind_options(options: Provider | Adapter, values: _Values) -> Provider | Adapter:
    """Fill in all texts of the options. A value that a package's class refuses is a fault."""
    if is_own(options):
        written = {name: getattr(options, name) for name in options.model_fields_set}
        return options.model_copy(update=filled(written, values.insert))
    before = as_written(options)
    after = filled(before, values.insert)
    if after == before:
        return options
    try:
        return options_of_package(type(options), after, again=True)
    except CRASHES as error:
        message = f"{values.place} is not valid for its package after variables are filled in"
        values.faults.append(misuse(f"{message}: {error}", None))
        return options


def _filled(value: T, fill: Callable[[str], str], *names: str) -> T:
    changes = {name: filled(getattr(value, name), fill) for name in names}
    found: T = replace(value, **changes)  # type: ignore[type-var]
    return found


def _missing(suite: Suite, missing: Mapping[str, Mapping[str, None]]) -> KindlmError:
    places = {name.removeprefix("env."): at for name, at in missing.items()}
    listed = "; ".join(f"{name} (in {first_of(at, MAX_PLACES)})" for name, at in places.items())
    message, where = f"Environment variables are not set: {listed}", SourceLocation(suite.path)
    hint = f"Set {', '.join(places)} in your environment or .env file"
    details = {"reason": _NOT_SET, "missing": [*places]}
    return KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint, where, details)
