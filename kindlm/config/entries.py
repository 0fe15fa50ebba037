"""Providers and agents as they stand in a file: a key says the kind, which has options of its own.

The kind is a model beside what does the work: a `plugins.Provider` or a `plugins.Adapter`, of
kindlm or of a package. Here its options are taken out of an entry and validated; what all entries
have is left to the schema of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from pydantic_core import PydanticCustomError

from kindlm.config.diagnostics import Reporter
from kindlm.config.target_schema import AgentConfig
from kindlm.config.validation import describe_choice, fit
from kindlm.document import Path, Raw, texts
from kindlm.errors import Err, ErrorCode, KindlmError, Ok
from kindlm.packages import (
    CRASHES,
    all_own,
    crashed,
    find,
    installed,
    is_own,
    own,
    own_names,
    provided,
)
from kindlm.plugins import Adapter, Provider
from kindlm.secrecy import SHORTEST_SECRET, is_ordinary, is_secret_option
from kindlm.section import Section
from kindlm.suggestions import ENDED, hint_for

K = TypeVar("K", Provider, Adapter)

_BEST_KNOWN = ("openai", "anthropic")
"""The providers that messages and the published schema name first."""


def provider_types() -> list[str]:
    """Return the types of kindlm's own providers."""
    others = sorted(all_own(Provider).keys() - {*_BEST_KNOWN})
    return [*_BEST_KNOWN, *others]


def keys_of(kind: type[Section]) -> list[str]:
    """Return the keys of the options of a provider or an adapter."""
    return [field.alias or name for name, field in kind.model_fields.items()]


def read_provider(path: Path, written: Raw, reporter: Reporter) -> tuple[Raw, Provider | None]:
    """Return the keys that all providers have, and the options of this one.

    Reports an unknown provider or type, keys that are missing, and options that do not fit.
    """
    name, type_ = str(path[-1]), written.get("type")
    wire = name if type_ is None else type_
    kind = own(Provider, wire) if isinstance(wire, str) else None
    in_packages = isinstance(wire, str) and kind is None and wire in installed(Provider.group)
    of_kind = _in_packages(Provider, str(wire)) if in_packages else kind
    if kind is None and not in_packages and type_ is None:
        known = (*provider_types(), *installed(Provider.group))
        reporter.error(
            path,
            f'Unknown provider "{name}"',
            ENDED.get(name)
            or f"{hint_for(name, known, 'Known providers', provided(Provider.group))}; for a"
            " compatible API add `type: openai` and `baseUrl`",
            reason="unknown_provider",
            code=ErrorCode.PROVIDER_NOT_FOUND,
            at_key=True,
            value=name,
        )
    elif kind is None and not in_packages:
        place = (*path, "type")
        known = (*provider_types(), *installed(Provider.group))
        message, hint = describe_choice(type_, known, provided(Provider.group))
        hint = ENDED.get(str(type_), hint)
        reporter.error(place, f"{reporter.place(place)} {message}", hint)
    elif name in own_names(Provider) and wire != name:
        reporter.error(
            (*path, "type"),
            f'The provider "{name}" cannot have the type {wire}',
            "Choose another name",
            reason="provider_type",
        )
    common = Provider.reserved if in_packages else Provider.reserved | {"organization"}
    options: Provider | None = None  # of an unknown provider, nothing is known of its options
    if in_packages:
        options = _of_package(Provider, str(wire), path, written, reporter)
    elif kind is not None:
        options = _of_kindlm(Provider, kind, path, written, common, reporter, _foreign_to_provider)
    for needed in () if of_kind is None else _needed_by(of_kind, name, str(wire), written):
        if needed not in written:
            reporter.missing_key((*path, needed))
    taken = {"type"} if kind is None and not in_packages and type_ is not None else set()
    return {key: written[key] for key in written if key in common - taken}, options


def _needed_by(kind: type[Provider], name: str, wire: str, written: Raw) -> Iterator[str]:
    """Yield the keys that a provider requires under a name."""
    if kind.usual_base_url is not None:
        yield from () if "baseUrl" in written else kind.address_options()
        return
    is_usual = name == wire or name in own_names(Provider)
    if kind.usual_key_variable is not None and is_usual:
        yield "apiKeyEnv"
    if kind.needs_base_url or (kind.usual_key_variable is not None and not is_usual):
        yield "baseUrl"


def _in_packages(base: type[K], name: str) -> type[K] | None:
    """Return the class of a package, None if it is faulty, which `fit_of_package` reports."""
    found = find(base, name)
    return found.value if isinstance(found, Ok) else None


def _foreign_to_provider(path: Path, key: str, owners: list[str], reporter: Reporter) -> None:
    article = "an" if owners[0][0] in "aeiou" else "a"
    kinds, types = " or ".join(owners), " or ".join(f"`type: {owner}`" for owner in owners)
    # Another type would make another provider of one that kindlm knows by its name.
    is_known = path[-1] in all_own(Provider)
    reporter.error(
        (*path, key),
        f'{reporter.place(path)} is not {article} {kinds} provider, "{key}" has no meaning there',
        f"Remove the {key}" if is_known else f"Write {types}, or remove the {key}",
        at_key=True,
    )


def read_agent(path: Path, written: Raw, reporter: Reporter) -> tuple[Raw, Adapter | None]:
    """Return the keys that all agents have, and the options of this one's adapter.

    Keys are in the spelling of the file. Reports an unknown adapter, an address that leads nowhere,
    options that do not fit, and keys that have no meaning.
    """
    spelling = reporter.spelling
    common = {*Adapter.reserved, *map(spelling.key, Adapter.reserved)}
    key = "adapter" if "adapter" in written else "type"
    adapter = written.get(key)
    kind = own(Adapter, adapter) if isinstance(adapter, str) and adapter else None
    options: Adapter | None

    def foreign(path: Path, key: str, owners: list[str], reporter: Reporter) -> None:
        name = str(adapter) if kind is None else recorded_name(kind, str(adapter))
        hint = f"Remove it: it is for {', '.join(owners)}"
        _meaningless(path, key, f"for the adapter {name}", hint, reporter)

    if kind is None and isinstance(adapter, str) and adapter in installed(Adapter.group):
        options = _of_package(Adapter, adapter, path, written, reporter)
        kind = _in_packages(Adapter, adapter)
        if kind is None:
            return {key: written[key] for key in written if key in common}, None
    elif kind is None and isinstance(adapter, str) and adapter:
        known = (*all_own(Adapter), *installed(Adapter.group))
        reporter.error(
            (*path, key),
            f'Unknown adapter "{adapter}"',
            hint_for(adapter, known, "Known adapters", provided(Adapter.group)),
            reason="unknown_adapter",
            code=ErrorCode.PROVIDER_NOT_FOUND,
            value=adapter,
        )
        return {key: written[key] for key in written if key in common}, None
    else:
        options = _of_kindlm(Adapter, kind, path, written, common, reporter, foreign)
    if kind is not None and not kind.takes_headers and "headers" in written:
        takers = [name for name, each in all_own(Adapter).items() if each.takes_headers]
        foreign(path, "headers", takers, reporter)
    try:
        for name, where, hint in () if options is None else options.without_meaning(spelling):
            for spelled in dict.fromkeys((name, spelling.key(name))):
                if spelled in written:
                    _meaningless(path, spelled, where, hint, reporter)
        needed = kind is None or kind.needs_endpoint
        if options is not None:
            needed = options.wants_endpoint()
        _check_endpoint(path, written, kind, reporter, needed=needed)
    except CRASHES as error:
        if kind is None or is_own(kind):
            raise
        plugin = installed(Adapter.group)[str(adapter)][0]
        report_faulty(path, crashed(plugin, "cannot check its keys", error), reporter)
    return {key: written[key] for key in written if key in common}, options


def recorded_name(kind: type[Adapter] | Adapter, adapter: str) -> str:
    """Return the name of an adapter that may be written by another name."""
    return kind.other_names.get(adapter, adapter)


def _meaningless(path: Path, key: str, where: str, hint: str, reporter: Reporter) -> None:
    message = f"`{key}` has no meaning {where}"
    reporter.error((*path, key), message, hint, at_key=True)


def _check_endpoint(
    path: Path, agent: Raw, kind: type[Adapter] | None, reporter: Reporter, *, needed: bool
) -> None:
    key = "url" if "url" in agent and "endpoint" not in agent else "endpoint"
    if key not in agent and needed:
        reporter.missing_key((*path, reporter.spelling.key(key)))
    endpoint = agent.get(key)
    if not isinstance(endpoint, str) or not endpoint:
        return
    try:
        (kind or Adapter).check_endpoint(endpoint)
    except PydanticCustomError as error:
        context = error.context or {}
        reporter.error(
            (*path, key),
            f"{reporter.place((*path, key))} {context.get('message', error.message())}",
            context.get("hint"),
            reason="endpoint",
            secret=context.get("secret", False),
        )


def _of_kindlm(
    base: type[K],
    kind: type[K] | None,
    path: Path,
    written: Raw,
    common: Collection[str],
    reporter: Reporter,
    report_foreign: Callable[[Path, str, list[str], Reporter], None],
) -> K | None:
    """Return the options of one of kindlm's own kinds, or None after reporting what does not fit.

    Without a `kind` only keys are reported that no kind has.
    """
    spelled = reporter.spelling.key
    known = {} if kind is None else {spelled(key): key for key in keys_of(kind)}
    given = {known[key]: value for key, value in written.items() if key in known}
    fits = True
    for key in written:
        if key in known or key in common:
            continue
        every = all_own(base)
        owners = [name for name, it in every.items() if key in map(spelled, keys_of(it))]
        if not owners:
            all_keys = flat_keys(base, every.values() if kind is None else [kind])
            reporter.unknown_key((*path, key), list(dict.fromkeys(map(spelled, all_keys))))
            fits = False
        elif kind is not None:
            report_foreign(path, key, owners, reporter)
    if kind is None:
        return None
    options: K | None = fit(kind, given, reporter, at=path, spelled=spelled)
    return options if fits else None


def flat_keys(base: type[Provider | Adapter], kinds: Iterable[type[Section]]) -> list[str]:
    """Return all keys that entries may have: common ones, those of the kinds, and other names."""
    options = dict.fromkeys(key for kind in kinds for key in keys_of(kind))
    if issubclass(base, Provider):
        return ["type", "apiKeyEnv", "baseUrl", "organization", *options]
    common = [
        field.alias or field.serialization_alias or name
        for name, field in AgentConfig.model_fields.items()
    ]
    return [*common, *options, "type", "url"]


def _of_package(
    base: type[Provider | Adapter], name: str, path: Path, written: Raw, reporter: Reporter
) -> Any:
    """Return the options of a package's kind, or None after reporting an error."""
    spelled: Callable[[str], str] = reporter.spelling.key if issubclass(base, Adapter) else str
    common = sorted(set(map(spelled, base.reserved)))
    given = {key: it for key, it in written.items() if key not in {*base.reserved, *common}}
    return fit_of_package(base, name, path, given, reporter, common, spelled)


def fit_of_package(
    base: Any,
    name: str,
    path: Path,
    written: Any,
    reporter: Reporter,
    common: Collection[str] = (),
    spelled: Callable[[str], str] = str,
) -> Any:
    """Return the options of what a package has, or None after reporting an error.

    That is a faulty package, a credential that is written out, or what does not fit the model of
    the package, where keys that are `common` may stand, too. Its keys are `spelled` differently in
    the file.
    """
    found = find(base, name)
    assert found is not None, "only names that packages have are looked up"
    if isinstance(found, Err):
        report_faulty(path, found.error, reporter)
        return None
    for place, text in texts(written, path):
        is_named = is_secret_option(str(place[-1]))
        is_literal = len(text) >= SHORTEST_SECRET and "{{" not in text
        if is_named and is_literal and not is_ordinary(text):
            reporter.error(
                place,
                f"{reporter.place(place)} looks like a credential in plain text",
                "Put it in an environment variable or in .env, and write {{env.NAME}}",
                reason="credential",
                secret=True,
            )
            return None
    as_spelled = {key: spelled(key) for key in keys_of(found.value)}
    if isinstance(written, dict):
        by_spelling = {name: key for key, name in as_spelled.items()}
        written = {by_spelling.get(key, key): value for key, value in written.items()}
    try:
        return fit(
            found.value,
            written,
            reporter,
            at=path,
            also_known=common,
            spelled=lambda key: as_spelled.get(key, key),
        )
    except CRASHES as error:
        plugin = installed(base.group)[name][0]
        report_faulty(path, crashed(plugin, "cannot read its options", error), reporter)
        return None


def report_faulty(path: Path, error: KindlmError, reporter: Reporter) -> None:
    """Report a fault of a package once, where it is first needed."""
    if all(error.message != each.error.message for each in reporter.diagnostics):
        reporter.error(
            path, error.message, error.hint, reason="plugin", at_key=True, trace=error.trace
        )
