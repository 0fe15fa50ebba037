"""Reads configurations of promptfoo: `promptfooconfig.yaml`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.config.interpolation import names_in
from kindlm.config.schema import MAX_TESTS, DefaultsConfig
from kindlm.dataclass import dataclass
from kindlm.generate.imported_tests import Checks, ImportedSuite, settings_of
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of
from kindlm.generate.suites.promptfoo.assertions import add_assertion
from kindlm.generate.suites.promptfoo.targets import Targets
from kindlm.generate.suites.promptfoo.texts import Variables, file_value, read_prompts, rows_of

TITLE = "promptfoo"

_READ = {"prompts", "providers", "targets", "tests", "defaultTest", "description"}
_READ |= {"evaluateOptions", "$schema"}
_OPTIONS = {"repeat": "repeat", "maxConcurrency": "concurrency", "timeoutMs": "timeoutMs"}
"""Options of a run, with their keys in `defaults`."""

_READ_OF_TESTS = {"description", "vars", "assert", "options", "metadata", "metric"}
_READ_OF_TESTS |= {"options.provider", "options.runSerially"}

_CHANGES = {"provider", "providers", "prompts", "threshold", "assertScoringFunction"}
_CHANGES |= {"prefix", "suffix", "transform", "transformVars", "postprocess", "storeOutputAs"}
_CHANGES |= {"providerOutput", "disableVarExpansion", "disableDefaultAsserts", "$values", "$expand"}
"""Settings without which it would be another test. Tests with one of them are skipped."""

_SET = {"type", "assert", "metric", "description"}
"""The keys of an `assert-set` whose assertions must all pass."""


def reads(document: Part) -> bool:
    """Return whether a file is a configuration of promptfoo."""
    keys = set(document.value) if isinstance(document.value, dict) else set()
    runs = bool(keys & {"providers", "targets"}) and bool(keys & {"prompts", "tests", "redteam"})
    return "kindlm" not in keys and (runs or {"prompts", "tests"} <= keys)


def read(document: Part, files: Files) -> ImportedSuite:
    """Read a configuration; raise `LeftOutError` if no suite can be made of it."""
    return _Reader(document, files).suite()


@dataclass(frozen=True, slots=True)
class _Case:
    """A test of the file, with the entries of `defaultTest`.

    If none of its `own` asserts has an equivalent, it is skipped: these are without the default
    ones, if it has some. `settings` are its other entries, and its options as `options.NAME`.
    """

    part: Part
    variables: Mapping[str, Part]
    asserts: list[Part]
    own: list[Part]
    settings: Mapping[str, Part]


class _Reader:
    def __init__(self, document: Part, files: Files) -> None:
        self._document, self._files = document, files
        self._suite = ImportedSuite(document.file, TITLE)
        self._targets = Targets(self._suite, files)
        self._prompts: dict[str, Mapping[str, str]] = {}

    def suite(self) -> ImportedSuite:
        document = self._document
        for key, part in document.entries().items():
            if key not in _READ:
                self._suite.leave_out(part, f"`{key}`")
        for part in document.items("providers") or document.items("targets"):
            self._targets.add(part)
        if not self._targets.found:
            self._suite.leave_out(document, "every provider", "Set `agents` or `models` yourself")
        self._prompts = read_prompts(document, self._files, self._suite)
        default = _Case(document, {}, [], [], {})
        for part in document.items("defaultTest"):
            for each in self._tests_in(part):
                default = self._case(each, default)
        options = document.entries("evaluateOptions")
        defaults = settings_of(options, self._suite, _OPTIONS, DefaultsConfig)
        judge = default.settings.get("options.provider")
        if judge is not None and (grader := self._targets.grader(judge)) is not None:
            defaults["judgeModel"] = grader
        head = self._suite.take()
        for entry in document.items("tests"):
            for part in self._tests_in(entry):
                with self._suite.losing(part, "a test"):
                    self._add(self._case(part, default))
        head |= self._targets.sections()
        if not self._targets.found:
            head |= {Comment("Set the address of your agent here, or `models`."): None}
            head["agents"] = [
                {"id": "agent", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"}
            ]
        stem = document.file.rpartition("/")[2].partition(".")[0]
        name = stem if stem != "promptfooconfig" else self._files.folder.resolve().name or stem
        head |= {"prompts": self._prompts, "defaults": defaults}
        return self._suite.finish(name, document.text("description"), head)

    # Tests

    def _case(self, part: Part, base: _Case) -> _Case:
        variables = part.get("vars")
        if not isinstance(part.value, dict) or not (
            variables is None or isinstance(variables.value, dict)
        ):
            raise LeftOutError("a form other than a mapping", "Write its `vars` into the file")
        asserts: list[Part] = []
        for each in part.items("assert"):
            is_set = each.text("type") == "assert-set" and not each.value.keys() - _SET
            asserts += each.items("assert") if is_set else [each]
        options = {f"options.{key}": each for key, each in part.entries("options").items()}
        return _Case(
            part,
            {**base.variables, **part.entries("vars")},
            [*base.asserts, *asserts],
            asserts or base.asserts,
            {**base.settings, **part.entries(), **options},
        )

    def _tests_in(self, part: Part) -> Iterator[Part]:
        """Yield the entry, or the tests in the files that it refers to."""
        text = part.value if isinstance(part.value, str) else part.text("path")
        if text is None:
            yield part
            return
        with self._suite.noting(part):
            for file in self._files.named(text.removeprefix("file://")):
                if file.endswith(".csv"):
                    yield from rows_of(file, self._files.text(file))
                elif file.endswith((".yaml", ".yml", ".json", ".jsonl")):
                    yield from self._files.part(file).items()
                else:
                    instead = "Write them as YAML, JSON or CSV: kindlm runs no code"
                    self._suite.leave_out(part, f"the tests of {excerpt_of(file)}", instead)

    def _add(self, case: _Case) -> None:
        """Add a test for each combination of the values of its variables."""
        hold = ""
        for key, part in case.settings.items():
            is_set = part.value is not None and part.value is not False
            if is_set and key not in _READ_OF_TESTS:
                self._suite.leave_out(part, f"`{key}` of a test")
                if key.removeprefix("options.") in _CHANGES:
                    hold = f"`{key}` changes what it tests"
        kept = self._suite.take()
        title = case.part.text("description") or f"test {self._suite.tests + 1}"
        values = {
            name: [file_value(each.value, self._files) for each in part.items() or [part]]
            for name, part in case.variables.items()
        }
        several = [name for name, found in values.items() if len(found) > 1]
        combinations = math.prod(map(len, values.values()))
        self._suite.tests += max(combinations - MAX_TESTS - 1, 0)
        for chosen in itertools.islice(itertools.product(*values.values()), MAX_TESTS + 1):
            variables = dict(zip(values, chosen, strict=True))
            shown = ", ".join(excerpt_of(variables[name]) for name in several)
            self._suite.current = dict(kept)
            name = f"{title} ({shown})" if shown else title
            with self._suite.losing(case.part, "a test"):
                self._add_one(case, name, Variables(variables), hold)

    def _add_one(self, case: _Case, name: str, variables: Variables, hold: str) -> None:
        checks, added = Checks(), list[Part]()
        for part in case.asserts:
            with self._suite.noting(part):
                own = part.get("provider") or case.part.entries("options").get("provider")
                grader = None if own is None else self._targets.grader(own)
                if different := add_assertion(part, self._files, variables, grader, checks):
                    self._suite.differ(part, f"`{part.text('type')}`. {different}")
                added.append(part)
        if case.own and not any(each in added for each in case.own):
            hold = hold or "kindlm has no equivalent of its checks"
        if not self._prompts:
            raise LeftOutError("no prompt", "Check `prompts`")
        test: dict[str, Any] = {"name": name}
        if 0 < len(self._targets.agents) < len(self._targets.found):
            test["models"] = self._targets.found
        names = names_in("\n".join(text for it in self._prompts.values() for text in it.values()))
        for unset in (each for each in names if variables.at(each) is None):
            self._suite.differ(case.part, f"{{{{{unset}}}}} has no value. It is empty")
        test["vars"] = {each: variables.text(each) for each in names}
        test["tags"] = [
            f"{key}:{excerpt_of(each.value)}"
            for key, part in case.part.entries("metadata").items()
            for each in part.items()
        ]
        test["tools"] = self._targets.tools
        written = {key: value for key, value in test.items() if value}
        self._suite.add(case.part, written, checks, hold)
