"""What a file says to the checks, providers and agent adapters of other packages.

Their keys are validated by the model of the package, and left out of what kindlm's own schema
validates. Files in which all names are kindlm's own pass through, and no package is looked for.
"""

from __future__ import annotations

import copy
from typing import Any

from kindlm.config.agent_rules import OPTIONS, OTHER_NAMES
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, dotted
from kindlm.config.expect import EXPECT_KEYS
from kindlm.config.provider_rules import PROVIDER_TYPES
from kindlm.config.raw import Raw, expectations, items, section, texts
from kindlm.config.schema import KindlmConfig
from kindlm.config.validation import fit
from kindlm.errors import Err, KindlmError
from kindlm.secrecy import SHORTEST_SECRET, is_ordinary, is_secret_option


class Plugged:
    """Takes the keys of packages out of a file: `rest` is the file without them.

    `keys` are those keys as JSON values, with their defaults, by the mapping that they stand in.
    """

    def __init__(self, raw: dict[str, Any], reporter: Reporter) -> None:
        self.rest = raw
        self.keys: dict[Path, dict[str, Any]] = {}
        self._reporter = reporter
        self._faults: set[str] = set()
        for name, provider in section(raw, "providers").items():
            wire = section(provider).get("type", name)
            if isinstance(provider, dict) and isinstance(wire, str) and wire not in PROVIDER_TYPES:
                self._take_options("Provider", wire, ("providers", name), provider)
        for path, agent in items(raw, "agents"):
            adapter = agent.get("adapter", agent.get("type"))
            if isinstance(adapter, str) and adapter not in {*OPTIONS, *OTHER_NAMES}:
                self._take_options("Adapter", adapter, path, agent)
        for path, test in items(raw, "tests"):
            for place, expect in expectations(test):
                for name in [key for key in expect if key not in EXPECT_KEYS]:
                    self._take_check(name, (*path, *place), expect[name])

    def put_into(self, config: KindlmConfig) -> None:
        """Add the keys to the sections of the configuration that the rest is validated as."""
        for path, keys in self.keys.items():
            place: Any = config
            for part in path:
                in_python = isinstance(part, str) and not isinstance(place, dict)
                place = getattr(place, str(part)) if in_python else place[part]
            place.add(keys)

    def _take_options(self, kind: str, name: str, path: Path, written: Raw) -> None:
        """Take the options of a provider or an agent, if it is one of a package."""
        from kindlm import plugins

        base: Any = getattr(plugins, kind)
        if name not in plugins.installed(base.group):
            return
        common = base.reserved
        own = {key: value for key, value in written.items() if key not in common}
        named = {key: written[key] for key in ("type",) if kind == "Provider" and key in written}
        rest = self._in_rest(path)
        for key in (*own, *named):
            del rest[key]
        options = self._options(base, name, path, own, common)
        self.keys[path] = {**named, **(options or {})}

    def _take_check(self, name: str, path: Path, written: Any) -> None:
        """Take a check, or a list of them, if it is one of a package."""
        from kindlm import plugins

        known = plugins.installed(plugins.Check.group)
        if not known:
            return
        self._in_rest(path).pop(name, None)
        place = (*path, name)
        if name not in known:
            self._reporter.unknown_key(place, [*EXPECT_KEYS, *known])
            return
        if written == []:
            message = f"{dotted(place)} must have at least 1 entry, but has none"
            self._reporter.error(place, message, reason="schema")
        self.keys.setdefault(path, {})[name] = (
            [
                self._options(plugins.Check, name, (*place, index), item)
                for index, item in enumerate(written)
            ]
            if isinstance(written, list)
            else self._options(plugins.Check, name, place, written)
        )

    def _options(
        self, base: Any, name: str, path: Path, written: Any, common: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """Return options as JSON values with their defaults, None after reporting an error."""
        from kindlm import plugins
        from kindlm.checks.base import kinds

        found = plugins.find(base, name)
        assert found is not None, "only names that packages have are looked up"
        if isinstance(found, Err):
            self._faulty(path, found.error)
            return None
        plugin = plugins.installed(base.group)[name][0]
        if base is plugins.Check and name in kinds():
            self._faulty(path, plugins.taken(plugin))
            return None
        for place, text in texts(written, path):
            if _is_secret(place, text):
                self._reporter.error(
                    place,
                    f"{dotted(place)} seems to be a credential that is written out here",
                    "Put it into an environment variable or into .env, and write {{env.NAME}}",
                    reason="credential",
                    secret=True,
                )
                return None
        try:
            options = fit(found.value, written, self._reporter, at=path, also_known=common)
            return None if options is None else options.model_dump(mode="json", by_alias=True)
        except plugins.CRASHES as error:
            self._faulty(path, plugins.crashed(plugin, "cannot read its options", error))
            return None

    def _faulty(self, path: Path, error: KindlmError) -> None:
        """Report a fault of a package once, where it is first needed."""
        if error.message not in self._faults:
            self._faults.add(error.message)
            self._reporter.error(
                path, error.message, error.hint, reason="plugin", at_key=True, trace=error.trace
            )

    def _in_rest(self, path: Path) -> dict[str, Any]:
        """Return a mapping of the rest, which is a copy of the file from now on."""
        if not self.keys:
            self.rest = copy.deepcopy(self.rest)
        place: Any = self.rest
        for part in path:
            place = place[part]
        found: dict[str, Any] = place
        return found


def _is_secret(path: Path, text: str) -> bool:
    is_literal = len(text) >= SHORTEST_SECRET and "{{" not in text
    return is_secret_option(str(path[-1])) and is_literal and not is_ordinary(text)
