"""Finds kindlm's own providers and adapters, and those of packages; guards calls of packages.

kindlm's own providers and adapters are found by the names of their modules. Entry points are only
read for other names, and a class is only loaded for use: a faulty package only affects the commands
that need it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any, TypeVar

from pydantic import BaseModel, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, broken, misuse, unanswered
from kindlm.guard import guard
from kindlm.outcome import Demands
from kindlm.plugins import Adapter, Check, Framework, Provider, Report
from kindlm.ports import AgentReply, ModelReply
from kindlm.returned_values import impossible, in_words, wrong_error, wrong_with
from kindlm.section import Section, resolved
from kindlm.suggestions import hint_for
from kindlm.values import NULL_IS_ABSENT
from kindlm.wording import shown

CRASHES = (Exception, SystemExit)
"""Exceptions from code of packages that must not end a run; `sys.exit()` is among them."""

K = TypeVar("K", Provider, Adapter)
P = TypeVar("P", Check, Provider, Adapter, Framework, Report)
R = TypeVar("R", ModelReply, AgentReply)
M = TypeVar("M", bound=BaseModel)

IF_PROVIDED = "If a package provides it: pip install PACKAGE"
"""The hint about an unknown name, which a package may provide."""

_KINDS: dict[str, tuple[type[Any], str, str]] = {
    Check.group: (Check, "evaluate", "check"),
    Provider.group: (Provider, "connect", "provider type"),
    Adapter.group: (Adapter, "open", "agent adapter"),
    Framework.group: (Framework, "read", "framework"),
    Report.group: (Report, "render", "report"),
}
"""For each group, the base class, the method that a subclass defines, and its name for users."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of a package; `package` is the name for pip."""

    group: str
    name: str
    package: str
    entry: EntryPoint

    def __str__(self) -> str:
        """Return its kind, name and package, for the beginning of a message."""
        return f'The {_KINDS[self.group][2]} "{self.name}" of the package {self.package}'


@cache
def installed(group: str) -> Mapping[str, tuple[Plugin, ...]]:
    """Return the entry points of a group by name, without importing them."""
    found: dict[str, dict[str, Plugin]] = {}
    for entry in entry_points(group=group):
        package = "(unknown)" if entry.dist is None else entry.dist.name
        # A package may be installed in two folders.
        found.setdefault(entry.name, {}).setdefault(
            package, Plugin(group, entry.name, package, entry)
        )
    return {name: tuple(packages.values()) for name, packages in sorted(found.items())}


@cache
def own_names(base: type[Provider | Adapter]) -> Mapping[str, str]:
    """Return the modules of kindlm's own providers or adapters by name, without importing them.

    `openai_provider.py` defines the provider `openai`, as its last class. For classes that share a
    file, see `_sharing_files`.
    """
    names = sorted(file.name for file in pkgutil.iter_modules(import_module(base.group).__path__))
    return {
        name.removesuffix(base.file_ending).replace("_", "-"): f"{base.group}.{name}"
        for name in names
        if name.endswith(base.file_ending)
    }


def own(base: type[K], name: str) -> type[K] | None:
    """Return kindlm's own provider or adapter with a name or an alias, None if there is none."""
    module = own_names(base).get(name)
    if module is not None:
        return defined_in(module, base)[-1]
    if base is Provider:
        return _sharing_files(base).get(name)
    return next((kind for kind in all_own(base).values() if name in _other_names(kind)), None)


def all_own(base: type[K]) -> dict[str, type[K]]:
    """Import all of kindlm's own providers or adapters; return them by their recorded names."""
    found: dict[str, type[K]] = {**_sharing_files(base)}
    for name, module in own_names(base).items():
        kind: type[K] = defined_in(module, base)[-1]
        for recorded in (name, *_other_names(kind).values()):
            found[recorded] = kind
    return dict(sorted(found.items()))


def _sharing_files(base: type[K]) -> Mapping[str, type[K]]:
    """Import the providers that share a file; return them by the names of their classes."""
    if base is not Provider:
        return {}
    presets = defined_in("kindlm.providers.preset_providers", base)
    return {kind.__name__.lower(): kind for kind in presets}


@cache
def defined_in(module: str, base: type[P]) -> list[type[P]]:
    """Return the subclasses of a base that a module defines, and does not import."""
    classes = [
        found
        for found in vars(import_module(module)).values()
        if inspect.isclass(found)
        and issubclass(found, base)
        and found.__module__ == module
        and not found.__name__.startswith("_")
    ]
    if not classes:
        raise TypeError(f"{module} defines no subclass of kindlm.plugins.{base.__name__}")
    return classes


def _other_names(kind: type[Any]) -> Mapping[str, str]:
    return kind.other_names if issubclass(kind, Adapter) else {}


def is_own(options: BaseModel | type[BaseModel]) -> bool:
    """Return whether options, or their class, belong to kindlm's own provider or adapter."""
    kind = options if isinstance(options, type) else type(options)
    return kind.__module__.startswith("kindlm.")


def as_written(options: Section | None) -> dict[str, Any]:
    """Return the options of a provider or an adapter as JSON values, by their keys in the file.

    Options of packages include defaults, which may differ in another version.
    """
    if options is None:
        return {}
    if not is_own(options):
        return options.model_dump(mode="json", by_alias=True)
    fields = type(options).model_fields
    return {
        fields[name].alias or name: resolved(getattr(options, name))
        for name in fields
        if name in options.model_fields_set
    }


def options_of_package(kind: type[M], written: Any, *, again: bool = False) -> M:
    """Return the options of a package's class from JSON values, where a date or an enum is text.

    With `again`, the values are those of valid options, where an absent key is null.
    """
    context = NULL_IS_ABSENT if again else None
    return kind.model_validate_json(json.dumps(written), context=context)


def find(base: type[P], name: str) -> Result[type[P]] | None:
    """Return the class that a package registers under a name, None if no package does.

    It is an error if two packages register the name, or if the package is faulty.
    """
    plugins = installed(base.group).get(name, ())
    if not plugins:
        return None
    if len(plugins) > 1:
        packages = " and ".join(sorted(plugin.package for plugin in plugins))
        message = f'The {_KINDS[base.group][2]} "{name}" is in more than one package: {packages}'
        return Err(misuse(message, "Keep one, and uninstall the others: pip uninstall NAME"))
    return _load(plugins[0])


def all_of(base: type[P], own: Collection[str]) -> tuple[dict[str, type[P]], list[KindlmError]]:
    """Load all classes of a group; return the usable ones by name, and the errors of the others.

    A class with one of kindlm's `own` names is an error.
    """
    found: dict[str, Result[type[P]] | None] = {}
    for name, plugins in installed(base.group).items():
        found[name] = Err(reserved_name(plugins[0])) if name in own else find(base, name)
    usable = {name: result.value for name, result in found.items() if isinstance(result, Ok)}
    return usable, [result.error for result in found.values() if isinstance(result, Err)]


def reserved_name(plugin: Plugin) -> KindlmError:
    """Return the error that a package registers one of kindlm's own names."""
    hint = f"Its authors have to rename it. Until then, uninstall {plugin.package}"
    return misuse(f"{plugin} has a name that kindlm reserves", hint)


@cache
def _load(plugin: Plugin) -> Result[Any]:
    if EntryPoint.pattern.match(plugin.entry.value) is None:
        message = f"{plugin} is registered as {shown(plugin.entry.value)}, not as `module:Class`"
        return Err(misuse(message, advice(plugin)))
    guard.enter()  # code of a package must not end the run
    try:
        with guard.single():
            found = plugin.entry.load()
        wrong = _wrong_with(found, plugin.group)
    except CRASHES as error:
        return Err(crashed(plugin, "cannot be loaded", error))
    if wrong is not None:
        return Err(misuse(f"{plugin} {wrong}", f"{advice(plugin)}, or uninstall it"))
    return Ok(found)


def _wrong_with(found: Any, group: str) -> str | None:
    """Return why a loaded object is not a valid plugin of a group; pydantic may raise, too."""
    base, work, _ = _KINDS[group]
    if not (inspect.isclass(found) and issubclass(found, base)):
        return f"is not a subclass of kindlm.plugins.{base.__name__}"
    if getattr(found, work) is getattr(base, work):
        return f"has no method `{work}`"
    if base is Check and not isinstance(getattr(found, "demands", None), Demands):
        return "has `demands` that is not a kindlm.plugins.Demands"
    if not issubclass(found, Section):
        return None
    # YAML cannot express a field without a JSON Schema, for which pydantic raises.
    try:
        schema = found.model_json_schema(by_alias=True, schema_generator=_OfSections)
    except _OptionError as error:
        return f"has options in {error}"
    keys = schema.get("properties", {})
    reserved = sorted(found.reserved & keys.keys()) if issubclass(found, Provider | Adapter) else []
    return f"has a field for `{reserved[0]}`, which is a key of kindlm" if reserved else None


class _OptionError(Exception):
    """Options have a type that kindlm cannot use."""


def _ignoring(kind: type[Any]) -> _OptionError:
    """Return the error of a model that is no `Section`: it would ignore unknown keys."""
    return _OptionError(f"`{kind.__name__}`, which is not a subclass of kindlm.plugins.Section")


class _OfSections(GenerateJsonSchema):
    def model_schema(self, schema: Any) -> dict[str, Any]:
        if not issubclass(schema["cls"], Section):
            raise _ignoring(schema["cls"])
        return super().model_schema(schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        from pydantic.dataclasses import is_pydantic_dataclass  # few options have a dataclass

        if is_pydantic_dataclass(schema["cls"]):
            raise _ignoring(schema["cls"])
        return super().dataclass_schema(schema)

    def set_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ARG002
        raise _OptionError("a set, whose order changes from run to run: it must be a tuple")

    frozenset_schema = set_schema


def made(
    base: type[Any],
    name: str,
    make: Callable[[type[Any]], Any],
    kind: type[Any],
    *,
    unknown: str,
    failing: str,
) -> Result[tuple[Plugin, Any]]:
    """Return the plugin with a name, and the client or agent of a `kind` that `make` returns.

    `make` gets the class of the plugin. `unknown` is the message if no package has the name, and
    `failing` what the plugin cannot do if `make` raises.
    """
    found = find(base, name)
    if isinstance(found, Err):
        return found
    if found is None:
        known = (*installed(base.group), *all_own(base))
        hint = hint_for(name, known, "Known", IF_PROVIDED)
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, unknown, hint))
    plugin = installed(base.group)[name][0]
    try:
        result = make(found.value)
    except CRASHES as error:
        return Err(crashed(plugin, failing, error))
    if isinstance(result, Err):
        return Err(valid_error(plugin, result.error))
    if isinstance(result, kind):
        return Ok((plugin, result))
    wrong = f"`{_KINDS[base.group][1]}` returned {in_words(result)}"
    message = f"{plugin} cannot be used: {wrong}, not a kindlm.plugins.{kind.__name__}"
    return Err(broken(message, advice(plugin)))


def valid_error(plugin: Plugin, error: KindlmError) -> KindlmError:
    """Return the error that a package returned, or one that says what is wrong with it."""
    if (wrong := wrong_error(error)) is None:
        return error
    return unanswered(f"{plugin} returned no valid error: {wrong}", hint=advice(plugin))


async def answered(
    plugin: Plugin, call: Callable[[], Awaitable[Any]], kind: type[R], timeout_s: float
) -> Result[R]:
    """Return the result of a call to a package's client or agent.

    Exceptions, invalid answers and timeouts become errors of a provider.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            outcome: Any = await call()
    except (*CRASHES, asyncio.CancelledError) as error:
        if is_cancelled(error):
            raise
        if limit.expired():
            message = f"{plugin} did not answer within {timeout_s:g} s"
            return Err(unanswered(message, code=ErrorCode.PROVIDER_TIMEOUT, retryable=True))
        return Err(failed(plugin, "crashed", error))
    if isinstance(outcome, Err):
        return Err(valid_error(plugin, outcome.error))
    wrong = "it is neither Ok nor Err" if not isinstance(outcome, Ok) else None
    if wrong is None:
        wrong = wrong_with(outcome.value, kind) or impossible(outcome.value)
    if wrong is None:
        return Ok(outcome.value)
    message = f"{plugin} returned no valid answer: {wrong}"
    return Err(unanswered(message, hint=advice(plugin)))


def is_cancelled(error: BaseException) -> bool:
    """Return whether kindlm cancelled the call, rather than its code raised such an exception."""
    task = asyncio.current_task()
    is_cancellation = isinstance(error, asyncio.CancelledError | GeneratorExit)
    return is_cancellation and (task is None or task.cancelling() > 0)


def crashed(plugin: Plugin, what: str, error: BaseException) -> KindlmError:
    """Return the error for an exception in code of a package; `what` is such as `crashed`.

    The message has the last line of the package in the traceback.
    """
    root = plugin.entry.module.partition(".")[0]
    frames = (
        (frame.f_globals.get("__name__") or "", line)
        for frame, line in walk_tb(error.__traceback__)
    )
    own_lines = [(module, line) for module, line in frames if module.partition(".")[0] == root]
    # The text of this error ends with a URL.
    text = error.message if isinstance(error, PydanticUserError) else error
    where = f" ({own_lines[-1][0]}, line {own_lines[-1][1]})" if own_lines else ""
    return broken(
        f"{plugin} {what}: {type(error).__name__}: {text}{where}",
        f"{advice(plugin)}, or uninstall it; --verbose shows the traceback",
        crash=error,
    )


def advice(plugin: Plugin) -> str:
    """Return the hint for a fault in a package."""
    return f"Fix or update {plugin.package}, or report this to its authors"


def failed(plugin: Plugin, what: str, error: BaseException) -> KindlmError:
    """Return the error of a provider or agent for an exception in code of a package."""
    crash = crashed(plugin, what, error)
    return unanswered(crash.message, hint=crash.hint, trace=crash.trace)
