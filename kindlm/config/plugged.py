"""What a file says to the checks, providers and agent adapters of other packages.

Their keys are validated by the model of the package, and left out of what kindlm's own schema
validates. Files in which all names are kindlm's own pass through, and no package is looked for.
"""

from __future__ import annotations

import copy
from typing import Any

from kindlm import packages, plugins
from kindlm.config.diagnostics import Reporter
from kindlm.config.entries import fit_of_package, read_agent, read_provider, report_faulty
from kindlm.config.expect import EXPECT_KEYS
from kindlm.config.schema import KindlmConfig
from kindlm.document import Path, Raw, expectations, items, section
from kindlm.errors import Ok
from kindlm.plugins import Adapter, Provider


class Plugged:
    """Takes the keys of packages out of a file: `rest` is the file without them.

    `keys` are those keys as JSON values, with their defaults, by the mapping that they stand in.
    """

    def __init__(self, raw: dict[str, Any], reporter: Reporter) -> None:
        self.rest = raw
        self.keys: dict[Path, dict[str, Any]] = {}
        self._is_copied = False
        self._reporter = reporter
        self._options_of: dict[Path, Provider | Adapter] = {}
        if isinstance(raw.get("providers"), dict):
            self.rest = {**self.rest, "providers": dict(raw["providers"])}
        if isinstance(raw.get("agents"), list):
            self.rest = {**self.rest, "agents": list(raw["agents"])}
        for name, provider in section(raw, "providers").items():
            if isinstance(provider, dict):
                read = read_provider(("providers", name), provider, reporter)
                self._keep("providers", name, *read)
        for path, agent in items(raw, "agents"):
            self._keep("agents", path[1], *read_agent(path, agent, reporter))
        for path, test in items(raw, "tests"):
            for place, expect in expectations(test):
                for name in [key for key in expect if key not in EXPECT_KEYS]:
                    self._take_check(name, (*path, *place), expect[name])

    def put_into(self, config: KindlmConfig) -> None:
        """Add keys and options to the sections that the rest of the file is validated as."""
        for path, keys in self.keys.items():
            _at(config, path).add(keys)
        for path, options in self._options_of.items():
            _at(config, path).choose(options)

    def _keep(
        self, key: str, name: str | int, rest: Raw, options: Provider | Adapter | None
    ) -> None:
        """Leave the rest of an entry to the schema of the file."""
        self.rest[key][name] = rest
        if options is not None:
            self._options_of[key, name] = options

    def _take_check(self, name: str, path: Path, written: Any) -> None:
        """Take a check, or a list of them, if it is one of a package."""
        known = packages.installed(plugins.Check.group)
        if name not in known:
            return
        self._in_rest(path).pop(name, None)
        place = (*path, name)
        if written == []:
            message = f"{self._reporter.place(place)} must have at least 1 entry, but is empty"
            self._reporter.error(place, message)
        self.keys.setdefault(path, {})[name] = (
            [
                self._options(plugins.Check, name, (*place, index), item)
                for index, item in enumerate(written)
            ]
            if isinstance(written, list)
            else self._options(plugins.Check, name, place, written)
        )

    def _options(self, base: Any, name: str, path: Path, written: Any) -> dict[str, Any] | None:
        """Return options as JSON values with their defaults, None after reporting an error."""
        from kindlm.checks.base import kinds

        plugin = packages.installed(base.group)[name][0]
        if name in kinds() and isinstance(packages.find(base, name), Ok):
            report_faulty(path, packages.taken(plugin), self._reporter)
            return None
        options = fit_of_package(base, name, path, written, self._reporter)
        try:
            return None if options is None else options.model_dump(mode="json", by_alias=True)
        except packages.CRASHES as error:
            fault = packages.crashed(plugin, "cannot read its options", error)
            report_faulty(path, fault, self._reporter)
            return None

    def _in_rest(self, path: Path) -> dict[str, Any]:
        """Return a mapping of the rest, which is a copy of the file from now on."""
        if not self._is_copied:
            self.rest, self._is_copied = copy.deepcopy(self.rest), True
        place: Any = self.rest
        for part in path:
            place = place[part]
        found: dict[str, Any] = place
        return found


def _at(config: Any, path: Path) -> Any:
    place = config
    for part in path:
        in_python = isinstance(part, str) and not isinstance(place, dict)
        place = getattr(place, str(part)) if in_python else place[part]
    return place
