"""Validates what the schema of the file does not know: options of providers, agents and packages.

The key `type` or `adapter` of an entry says its kind: a `plugins.Provider` or `plugins.Adapter`, of
kindlm or of a package, whose fields are the options. `Plugged` takes the options, and the checks of
packages, out of the file and validates them. The common keys stay for the schema of the file.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kindlm.checks.base import kinds
from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import EXPECT_KEYS
from kindlm.config.schema import KindlmConfig
from kindlm.config.validation import fit
from kindlm.document import Path, Raw, expectations, items, section, texts
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.packages import (
    CRASHES,
    IF_PROVIDED,
    all_own,
    crashed,
    find,
    installed,
    is_own,
    own,
    own_names,
    reserved_name,
)
from kindlm.plugins import Adapter, Check, Provider
from kindlm.secrecy import SHORTEST_SECRET, is_ordinary, is_secret_option
from kindlm.suggestions import ENDED, hint_for

K = TypeVar("K", Provider, Adapter)

_BEST_KNOWN = ("openai", "anthropic")
"""The providers that messages and the published schema name first."""


def provider_types() -> list[str]:
    """Return the types of kindlm's own providers, the best known first."""
    others = sorted(all_own(Provider).keys() - {*_BEST_KNOWN})
    return [*_BEST_KNOWN, *others]


def read_provider(path: Path, written: Raw, reporter: Reporter) -> tuple[Raw, Provider | None]:
    """Return the common keys of a provider's entry, and its options.

    Reports an unknown provider or type, missing keys, and options that do not fit.
    """
    name, type_ = str(path[-1]), written.get("type")
    wire = name if type_ is None else type_
    found = _kind(Provider, wire)
    kind = found.value if isinstance(found, Ok) else None
    is_ours = found is None or (kind is not None and is_own(kind))
    common = Provider.reserved | ({"organization"} if is_ours else set())
    rest, given = _split(written, common)
    if found is None:
        place, instead = (*path, "type"), ""
        if type_ is None:
            place, instead = path, "For a compatible API, add `type: openai` and `baseUrl`"
        _report_unknown(Provider, place, wire, reporter, instead)
        return {key: rest[key] for key in rest if key != "type"}, None
    options = _options(str(wire), found, path, given, reporter, common)
    if name in own_names(Provider) and wire != name:
        message = f'The provider "{name}" cannot have the type {wire}'
        reason = "provider_type"
        reporter.error((*path, "type"), message, "Choose another name", reason=reason)
    for needed in () if kind is None else _needed_by(kind, name, str(wire), written):
        if needed not in written:
            usual = kind.usual_key_variable if kind and needed == "apiKeyEnv" else None
            such = f", such as `apiKeyEnv: {usual}`" if usual else ""
            reporter.missing_key((*path, needed), such)
    return rest, options


def _report_unknown(
    base: type[Provider | Adapter], place: Path, name: object, reporter: Reporter, instead: str = ""
) -> None:
    """Report a provider or an adapter that neither kindlm nor a package has."""
    what, own_kinds = "provider", provider_types()
    if base is Adapter:
        what, own_kinds = "adapter", list(all_own(Adapter))
    known = (*installed(base.group), *own_kinds)
    hint = hint_for(str(name), known, f"Known {what}s", IF_PROVIDED)
    if instead:
        hint += f"{' ' if hint.endswith('?') else '. '}{instead}"
    reporter.error(
        place,
        f'Unknown {what} "{name}"',
        ENDED.get(str(name), hint),
        reason=f"unknown_{what}",
        code=ErrorCode.PROVIDER_NOT_FOUND,
        at_key=bool(instead),  # an entry without a type names the provider by its key
        value=name,
    )


def _needed_by(kind: type[Provider], name: str, wire: str, written: Raw) -> Iterator[str]:
    if kind.usual_base_url is not None:
        yield from () if "baseUrl" in written else kind.address_options()
        return
    is_usual, has_key = name in {wire, *own_names(Provider)}, kind.usual_key_variable is not None
    if has_key and is_usual:
        yield "apiKeyEnv"
    if kind.needs_base_url or (has_key and not is_usual):
        yield "baseUrl"


def read_agent(path: Path, written: Raw, reporter: Reporter) -> tuple[Raw, Adapter | None]:
    """Return the common keys of an agent's entry, and the options of its adapter.

    Keys are in the spelling of the file. Reports an unknown adapter, an invalid address, options
    that do not fit, and keys without meaning.
    """
    spelling = reporter.spelling
    common = {*Adapter.reserved, *map(spelling.key, Adapter.reserved)}
    rest, given = _split(written, common)
    key = "adapter" if "adapter" in written else "type"
    adapter = written.get(key)
    found = _kind(Adapter, adapter)
    if found is None and isinstance(adapter, str) and adapter:
        _report_unknown(Adapter, (*path, key), adapter, reporter)
        return rest, None
    if found is None:
        # The schema reports it: there is no adapter, or it is not a text.
        _check_endpoint(path, written, Adapter, reporter, needed="command" not in written)
        return rest, None
    options = _options(str(adapter), found, path, given, reporter, common)
    if isinstance(found, Err):
        return rest, None
    kind = found.value
    if not kind.takes_headers and "headers" in written:
        where = f"for the adapter {recorded_name(kind, str(adapter))}"
        _meaningless(path, "headers", where, "Remove it", reporter)
    with guarded(kind, str(adapter), path, "cannot check its keys", reporter):
        for name, where, hint in () if options is None else options.without_meaning(spelling):
            for spelled in dict.fromkeys((name, spelling.key(name))):
                if spelled in written:
                    _meaningless(path, spelled, where, hint, reporter)
        needed = kind.needs_endpoint if options is None else options.wants_endpoint()
        _check_endpoint(path, written, kind, reporter, needed=needed)
    return rest, options


def recorded_name(kind: type[Adapter] | Adapter, adapter: str) -> str:
    """Return the name under which an adapter is recorded: its own for an alias."""
    return kind.other_names.get(adapter, adapter)


def _meaningless(path: Path, key: str, where: str, hint: str, reporter: Reporter) -> None:
    message = f"`{key}` has no meaning {where}"
    reporter.error((*path, key), message, hint, at_key=True)


def _check_endpoint(
    path: Path, agent: Raw, kind: type[Adapter], reporter: Reporter, *, needed: bool
) -> None:
    key = "url" if "url" in agent and "endpoint" not in agent else "endpoint"
    if key not in agent and needed:
        reporter.missing_key((*path, reporter.spelling.key(key)))
    endpoint = agent.get(key)
    if not isinstance(endpoint, str) or not endpoint:
        return
    with reporter.refused((*path, key), "endpoint"):
        kind.check_endpoint(endpoint)


def _split(written: Raw, common: Collection[str]) -> tuple[Raw, Raw]:
    """Return the keys of an entry that are `common` to all kinds, and its options."""
    rest = {key: written[key] for key in written if key in common}
    return rest, {key: written[key] for key in written if key not in common}


def _kind(base: type[K], name: object) -> Result[type[K]] | None:
    """Return the class with a name, an error if its package is faulty; None if it is unknown."""
    if not isinstance(name, str) or not name:
        return None
    kind = own(base, name)
    return find(base, name) if kind is None else Ok(kind)


def _options(
    name: str,
    found: Result[Any],
    path: Path,
    written: Any,
    reporter: Reporter,
    common: Collection[str] = (),
) -> Any:
    """Return the options of the class with a name, or None after reporting an error.

    Reports a faulty package, a credential in plain text, and what does not fit the class. Keys that
    are `common` to all kinds may stand beside the options.
    """
    if isinstance(found, Err):
        report_faulty(path, found.error, reporter)
        return None
    kind = found.value
    for place, text in () if is_own(kind) else texts(written, path):
        is_named = is_secret_option(str(place[-1]))
        is_literal = len(text) >= SHORTEST_SECRET and "{{" not in text
        if is_named and is_literal and not is_ordinary(text):
            message = f"{reporter.place(place)} looks like a credential in plain text"
            hint = "Put it in an environment variable or in .env, and write {{env.NAME}}"
            reporter.error(place, message, hint, reason="credential", secret=True)
            return None
    known = sorted(set(map(reporter.spelling.key, common)))
    options = None
    with guarded(kind, name, path, "cannot read its options", reporter):
        options = fit(kind, written, reporter, at=path, also_known=known)
    return options  # noqa: RET504 - None after a crash


@contextmanager
def guarded(
    kind: type[Check | Provider | Adapter], name: str, path: Path, what: str, reporter: Reporter
) -> Iterator[None]:
    """Report a crash in code of a package, whose class has this name; raise those of kindlm."""
    try:
        yield
    except CRASHES as error:
        if is_own(kind):
            raise
        plugin = installed(kind.group)[name][0]
        report_faulty(path, crashed(plugin, what, error), reporter)


def report_faulty(path: Path, error: KindlmError, reporter: Reporter) -> None:
    """Report a fault of a package, if it has not been reported already."""
    message, hint, trace = error.message, error.hint, error.trace
    if all(message != each.error.message for each in reporter.diagnostics):
        reporter.error(path, message, hint, reason="plugin", at_key=True, trace=trace)


class Plugged:
    """Takes options, and checks of packages, out of a file; `rest` is the file without them.

    Entry points of packages are read only if a name is not kindlm's own.
    """

    def __init__(self, raw: dict[str, Any], reporter: Reporter) -> None:
        self.rest = raw
        self._keys: dict[Path, dict[str, Any]] = {}
        self._reporter = reporter
        self._options_of: dict[Path, Provider | Adapter | None] = {}
        if isinstance(raw.get("providers"), dict):
            self.rest = {**self.rest, "providers": dict(raw["providers"])}
        if isinstance(raw.get("agents"), list):
            self.rest = {**self.rest, "agents": list(raw["agents"])}
        for name, provider in section(raw, "providers").items():
            if isinstance(provider, dict):
                rest, self._options_of["providers", name] = read_provider(
                    ("providers", name), provider, reporter
                )
                self.rest["providers"][name] = rest
        for path, agent in items(raw, "agents"):
            self.rest["agents"][path[1]], self._options_of[path] = read_agent(path, agent, reporter)
        for path, test in items(raw, "tests"):
            for place, expect in expectations(test):
                for name in [key for key in expect if key not in EXPECT_KEYS]:
                    self._take_check(name, (*path, *place), expect[name])

    def put_into(self, config: KindlmConfig) -> None:
        """Add the checks and options to the configuration that was made of `rest`."""
        for path, keys in self._keys.items():
            _at(config, path).add(keys)
        for path, options in self._options_of.items():
            _at(config, path).choose(options)

    def _take_check(self, name: str, path: Path, written: Any) -> None:
        """Take a check, or a list of checks, if its name is one of a package."""
        if name not in installed(Check.group):
            return
        if not self._keys:
            self.rest = copy.deepcopy(self.rest)
        _at(self.rest, path).pop(name, None)
        place = (*path, name)
        if written == []:
            message = f"{self._reporter.place(place)} must have at least 1 entry, but is empty"
            self._reporter.error(place, message)
        is_many = isinstance(written, list)
        options = [
            self._options(name, (*place, index) if is_many else place, item)
            for index, item in enumerate(written if is_many else [written])
        ]
        self._keys.setdefault(path, {})[name] = options if is_many else options[0]

    def _options(self, name: str, path: Path, written: Any) -> dict[str, Any] | None:
        """Return the options of a check as JSON, with defaults; None after reporting an error."""
        found = find(Check, name)
        assert found is not None, "only names that packages have are looked up"
        if name in kinds() and isinstance(found, Ok):
            fault = reserved_name(installed(Check.group)[name][0])
            report_faulty(path, fault, self._reporter)
            return None
        options: Check | None = _options(name, found, path, written, self._reporter)
        dumped = None
        if options is not None:
            with guarded(type(options), name, path, "cannot read its options", self._reporter):
                dumped = options.model_dump(mode="json", by_alias=True)
        return dumped


def _at(config: Any, path: Path) -> Any:
    place = config
    for part in path:
        in_python = isinstance(part, str) and not isinstance(place, dict)
        place = getattr(place, str(part)) if in_python else place[part]
    return place
