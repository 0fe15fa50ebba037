"""Configurations of promptfoo: `promptfooconfig.yaml`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT, MAX_TIMEOUT_S
from kindlm.config.schema import MAX_TESTS
from kindlm.generate.imported_tests import Checks, Tests, head_comments
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, ImportedSuite, Notes, NoTwinError, Part, excerpt_of
from kindlm.generate.suites.promptfoo.assertions import (
    OTHER_ASSERTION_KEYS,
    READ_KEYS,
    add_assertion,
)
from kindlm.generate.suites.promptfoo.prompts import Prompt, fits, read_prompts
from kindlm.generate.suites.promptfoo.rows import rows_of
from kindlm.generate.suites.promptfoo.targets import Target, Targets
from kindlm.generate.suites.promptfoo.templates import (
    Variables,
    replace_names,
    text_of,
    values_of,
)

TITLE = "promptfoo"

_PLACEHOLDER_AGENTS = [
    {"id": "agent", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"},
]
"""The agents of a suite whose file names no target that kindlm can call."""

_READ = {"prompts", "providers", "targets", "tests", "defaultTest", "scenarios", "description"}
_READ |= {"evaluateOptions", "assertionTemplates", "$schema"}
_OPTIONS = {
    "repeat": ("repeat", range(1, MAX_REPEAT + 1)),
    "maxConcurrency": ("concurrency", range(1, MAX_CONCURRENCY + 1)),
    "timeoutMs": ("timeoutMs", range(1000, MAX_TIMEOUT_S * 1000)),
}
"""What options of a run are in `defaults`, and the values that they take there."""

OTHER_KEYS: dict[str, str] = {
    "redteam": "kindlm has attacks as packs: `kindlm test pack:NAME`",
    "extensions": "Start programs with `serve`",
    "env": "Set the variables, or write them into .env",
    "nunjucksFilters": "kindlm fills in plain names only",
    "derivedMetrics": "kindlm reports each check by itself",
    "outputPath": "Write reports with `kindlm test --reporter`",
    "tags": "Write `suite.tags`",
    "commandLineOptions": "Use the options of `kindlm test`",
    "tracing": "Write `telemetry: otlp` on the agent",
    "sharing": "Runs stay in the history on this machine",
}
"""Keys of the file without a twin, and what to do instead."""

_READ_OF_TESTS = {"description", "vars", "assert", "options", "threshold", "metadata", "provider"}
_READ_OF_TESTS |= {"name", "providers", "prompts", "providerOutput", "assertScoringFunction"}
_READ_OPTIONS = {"provider", "transform", "postprocess", "disableVarExpansion", "repeat"}
_READ_OPTIONS |= {"disableDefaultAsserts", "runSerially"}
_MESSAGE_OPTIONS = {"transformVars", "prefix", "suffix", "storeOutputAs"}
"""Options that change what is sent."""


def reads(document: Part) -> bool:
    """Tell whether a file is a configuration of promptfoo."""
    keys = set(document.value) if isinstance(document.value, dict) else set()
    runs = bool(keys & {"providers", "targets"}) and bool(keys & {"prompts", "tests", "redteam"})
    return "kindlm" not in keys and (runs or {"prompts", "tests"} <= keys)


def read(document: Part, files: Files) -> ImportedSuite:
    """Read a configuration; raise `NoTwinError` if no suite can be made of it."""
    return _Reader(document, files).suite()


@dataclass(frozen=True, slots=True)
class _Case:
    """A test of the file, with what `defaultTest` and its scenario add."""

    part: Part
    variables: Mapping[str, Part]
    asserts: list[Part]
    options: Mapping[str, Part]
    threshold: Part | None
    entries: Mapping[str, Part] = field(default_factory=dict)


class _Reader:
    def __init__(self, document: Part, files: Files) -> None:
        self._document, self._files = document, files
        self._notes = Notes()
        self._tests = Tests(self._notes)
        self._targets = Targets(self._notes, files)
        self._prompts: list[Prompt] = []

    def suite(self) -> ImportedSuite:
        document = self._document
        for key, part in document.entries().items():
            if key not in _READ:
                instead = OTHER_KEYS.get(key, "kindlm has no such setting")
                self._notes.left_out(part, f"`{key}`", instead)
        for part in document.items("providers") or document.items("targets"):
            self._targets.add(part)
        self._prompts = read_prompts(document, self._files, self._notes)
        default = self._without_transform(self._default())
        defaults = self._defaults(default)
        head: dict[str | Comment, Any] = dict.fromkeys(
            head_comments(self._notes, f"Imported from {document.file} ({TITLE}).")
        )
        for case in self._cases(default):
            self._add(case)
        said = document.text("description")
        head |= {
            "kindlm": 1,
            "suite": {"name": self._name()} | ({"description": said} if said else {}),
        }
        sections = self._targets.sections()
        head |= {key: sections[key] for key in ("providers", "models") if key in sections}
        if not self._targets.found:
            self._notes.left_out(document, "every provider", "Set `agents` or `models` yourself")
            head |= {Comment("Set the address of your agent here, or `models`."): None}
        head["agents"] = self._targets.agents or _PLACEHOLDER_AGENTS[: not self._targets.found]
        head["prompts"] = {each.name: each.section for each in self._prompts}
        head["defaults"] = defaults
        empty = [key for key, value in head.items() if isinstance(key, str) and not value]
        for key in empty:
            del head[key]
        return self._tests.suite(head)

    def _name(self) -> str:
        stem = self._document.file.rpartition("/")[2].partition(".")[0]
        return stem if stem != "promptfooconfig" else self._files.folder.resolve().name or stem

    def _defaults(self, default: _Case) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, part in self._document.entries("evaluateOptions").items():
            name, values = _OPTIONS.get(key, ("", range(0)))
            if type(part.value) is int and part.value in values:
                found[name] = part.value
            elif key not in ("showProgressBar", "cache"):
                self._notes.left_out(part, f"`{key}`", "Use the options of `kindlm test`")
        if "provider" in default.options:
            judge = self._targets.grader(default.options["provider"])
            found |= {} if judge is None else {"judgeModel": judge}
        return found

    # Tests

    def _default(self) -> _Case:
        part = self._document.get("defaultTest")
        empty = _Case(self._document, {}, [], {}, None)
        if part is None:
            return empty
        try:
            if isinstance(part.value, str):
                part = self._files.part(part.value.removeprefix("file://"))
            return self._case(part, empty)
        except NoTwinError as error:
            self._notes.left_out(part, error.what, error.instead)
            return empty

    def _without_transform(self, default: _Case) -> _Case:
        """Return the default test without a transform that only says where the answer is."""
        transform = default.options.get("transform")
        found = re.fullmatch(
            r"output((?:\.\w+|\[\d+\])*?)(?:\.trim\(\))?", str(transform and transform.value)
        )
        if found is None or (found[1] and not self._targets.answer_at(found[1].lstrip("."))):
            return default
        options = {key: part for key, part in default.options.items() if key != "transform"}
        return replace(default, options=options)

    def _case(self, part: Part, default: _Case) -> _Case:
        entries = part.entries()
        own = part.entries("options")
        asserts = [self._dereferenced(each) for each in part.items("assert")]
        if own.get("disableDefaultAsserts") is None or not own["disableDefaultAsserts"].value:
            asserts = default.asserts + asserts
        return _Case(
            part,
            {**default.variables, **self._variables(part.get("vars"))},
            asserts,
            {**default.options, **own},
            entries.get("threshold", default.threshold),
            {**default.entries, **entries},
        )

    def _variables(self, part: Part | None) -> dict[str, Part]:
        if part is None or isinstance(part.value, dict):
            return {} if part is None else part.entries()
        found: dict[str, Part] = {}
        for each in part.items():
            for file in self._files.named(str(each.value).removeprefix("file://")):
                found |= self._files.part(file).entries()
        return found

    def _dereferenced(self, part: Part) -> Part:
        """Return the template that an assertion refers to, or itself."""
        reference = part.text("$ref")
        if reference is None:
            return part
        templates = self._document.get("assertionTemplates")
        name = reference.removeprefix("#/assertionTemplates/")
        return (templates.get(name) if templates else None) or part

    def _cases(self, default: _Case) -> Iterator[_Case]:
        for part in self._document.items("tests"):
            for each in self._tests_in(part):
                yield from self._read_case(each, default)
        for scenario in self._document.items("scenarios"):
            if isinstance(scenario.value, str):
                what = f"the scenarios in {excerpt_of(scenario.value)}"
                self._notes.left_out(scenario, what, "Move them into this file")
                continue
            configs = (
                each for config in scenario.items("config") for each in self._tests_in(config)
            )
            for config in configs:
                for base in self._read_case(config, default):
                    for part in scenario.items("tests"):
                        for each in self._tests_in(part):
                            yield from self._read_case(each, base)

    def _read_case(self, part: Part, default: _Case) -> Iterator[_Case]:
        try:
            yield self._case(part, default)
        except NoTwinError as error:
            self._lose(part, error)

    def _lose(self, part: Part, error: NoTwinError) -> None:
        self._tests.found += 1
        self._notes.left_out(part, f"a test with {error.what}", error.instead)
        self._notes.take()

    def _tests_in(self, part: Part) -> Iterator[Part]:
        """Yield the tests of an entry: itself, or those in the files that it names."""
        named = (part.text(key) for key in ("path", "$values", "$expand"))
        text = part.value if isinstance(part.value, str) else next(filter(None, named), None)
        if text is None:
            yield part
            return
        try:
            for file in self._files.named(text.removeprefix("file://")):
                if file.endswith(".csv"):
                    yield from rows_of(file, self._files.text(file), self._notes)
                elif file.endswith((".yaml", ".yml", ".json", ".jsonl")):
                    yield from self._files.part(file).items()
                else:
                    instead = "Write them into a YAML, JSON or CSV file: kindlm runs no code here"
                    self._notes.left_out(part, f"the tests of {excerpt_of(file)}", instead)
        except NoTwinError as error:
            self._notes.left_out(part, error.what, error.instead)

    def _add(self, case: _Case) -> None:
        for key, part in case.part.entries().items():
            if key not in _READ_OF_TESTS:
                self._notes.left_out(part, f"`{key}` of a test", "kindlm has no such setting")
        for key, part in case.options.items():
            if key in _MESSAGE_OPTIONS and part.value:
                error = NoTwinError(f"`options.{key}`", "Write the text into the prompt")
                self._lose(case.part, error)
                return
            if key not in _READ_OPTIONS:
                self._notes.left_out(part, f"`options.{key}`", "kindlm has no such option")
        if "providerOutput" in case.entries:
            instead = "Import recorded answers with `kindlm history import`"
            self._lose(case.part, NoTwinError("`providerOutput`", instead))
            return
        try:
            combinations = list(itertools.islice(self._combinations(case), MAX_TESTS + 1))
        except NoTwinError as error:
            self._lose(case.part, error)
            return
        number = self._tests.found + 1
        description = case.part.text("description") or case.part.text("name")
        for suffix, variables in combinations:
            self._tests.found += 1
            name = f"{description or f'test {number}'}{suffix}"
            try:
                self._add_one(case, name, Variables(variables))
            except NoTwinError as error:
                self._notes.left_out(case.part, f"a test with {error.what}", error.instead)
                self._notes.take()

    def _combinations(self, case: _Case) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each combination of the variables' values, with what it adds to the name."""
        expands = "disableVarExpansion" not in case.options
        values = {}
        for name, part in case.variables.items():
            found = values_of(part, self._files)
            values[name] = found if expands or not isinstance(part.value, list) else [part.value]
        several = [name for name, found in values.items() if len(found) > 1]
        for chosen in itertools.product(*values.values()):
            variables = dict(zip(values, chosen, strict=True))
            said = ", ".join(excerpt_of(variables[name]) for name in several)
            yield f" ({said})" if said else "", variables

    def _add_one(self, case: _Case, name: str, variables: Variables) -> None:
        checks = Checks()
        hold = self._hold(case)
        for part in case.asserts:
            self._assert(part, variables, case, checks)
        groups: dict[tuple[tuple[str, ...], str], list[Target]] = {}
        for target in self._targets_of(case):
            prompts = tuple(each.name for each in self._prompts_of(case, target))
            if prompts:
                # All targets of a test have the same prompts and tools.
                groups.setdefault((prompts, str(target.tools)), []).append(target)
        if not self._prompts:
            raise NoTwinError("no prompt that could be imported", "Write it under `prompts`")
        everything = tuple(each.name for each in self._prompts)
        targets = self._targets.found
        if not groups and targets:
            raise NoTwinError("no prompt and provider that fit", "Check its filters")
        tests: list[dict[str, Any]] = []
        for (prompts, _), those in (groups or {(everything, ""): []}).items():
            said = f" [{', '.join(each.id for each in those)}]" if len(groups) > 1 else ""
            test: dict[str, Any] = {"name": f"{name}{said}"}
            if prompts != everything:
                test["prompts"] = list(prompts)
            if len(those) != len(targets) or 0 < len(self._targets.agents) < len(targets):
                test["models"] = [each.id for each in those]
            test |= self._vars_of(prompts, variables, case.part)
            test |= self._tags(case)
            repeat = case.options.get("repeat")
            if repeat is not None and type(repeat.value) is int and 0 < repeat.value <= MAX_REPEAT:
                test["repeat"] = repeat.value
            if those and those[0].tools:
                test["tools"] = those[0].tools
            tests.append(test)
        self._tests.add(case.part, tests, checks, hold)

    def _vars_of(
        self, prompts: tuple[str, ...], variables: Variables, part: Part
    ) -> dict[str, dict[str, str]]:
        found: dict[str, str] = {}

        def value(name: str) -> str:
            if not variables.has(name):
                self._notes.different(
                    part, f"{{{{{name}}}}} has no value", "It is empty, as in promptfoo"
                )
            found[name] = variables.text(name)
            return ""

        for prompt in self._prompts:
            if prompt.name in prompts:
                for said in prompt.section.values():
                    replace_names(said, value)
        return {"vars": found} if found else {}

    def _tags(self, case: _Case) -> dict[str, list[str]]:
        tags = []
        for key, part in case.part.entries("metadata").items():
            for each in part.items():
                if isinstance(each.value, dict | list):
                    what = f"`metadata.{key}`"
                    self._notes.left_out(each, what, "Write it as `tags` of the test")
                else:
                    tags.append(f"{key}:{text_of(each.value)}")
        return {"tags": tags} if tags else {}

    def _targets_of(self, case: _Case) -> list[Target]:
        """Return the targets that a test runs on: all, those that it names, or one of its own."""
        names = case.entries.get("providers") or case.entries.get("provider")
        if names is None:
            return self._targets.found
        found = []
        for part in names.items():
            name = part.value if isinstance(part.value, str) else part.text("id")
            chosen = [each for each in self._targets.found if fits(name or "", each.names)]
            if not chosen:
                what = f"the provider {excerpt_of(part.value)} of a test"
                raise NoTwinError(what, "Add it to `models` or `agents`")
            found += chosen
        return found

    def _prompts_of(self, case: _Case, target: Target) -> list[Prompt]:
        own = case.entries.get("prompts")
        filters = [target.prompts, None if own is None else [str(p.value) for p in own.items()]]
        return [
            each
            for each in self._prompts
            if all(
                names is None or any(fits(name, each.names) for name in names) for names in filters
            )
        ]

    # Assertions

    def _hold(self, case: _Case) -> str:
        """Return why a test has to be looked at before it can run; empty if it need not."""
        if "assertScoringFunction" in case.entries:
            self._notes.left_out(
                case.entries["assertScoringFunction"],
                "`assertScoringFunction`",
                "kindlm demands all checks of a test",
            )
            return "its score is computed by a program"
        if "transform" in case.options or "postprocess" in case.options:
            self._notes.left_out(
                case.options.get("transform", case.part),
                "`options.transform`",
                "Write the checks for the answer as it is",
            )
            return "its checks are for an answer that is changed before"
        threshold = case.threshold
        if threshold is None or not _tolerates(case.asserts, threshold.value):
            return ""
        what = "a `threshold` that tolerates failures"
        self._notes.left_out(threshold, what, "kindlm demands all checks of a test")
        return "it passes when only some of its checks pass"

    def _assert(self, part: Part, variables: Variables, case: _Case, checks: Checks) -> None:
        """Add the twin of an assertion, or note that there is none."""
        if part.text("type") == "assert-set":
            inner = [self._dereferenced(each) for each in part.items("assert")]
            threshold = part.get("threshold")
            if threshold is not None and _tolerates(inner, threshold.value):
                what = "an `assert-set` of which only some need to pass"
                self._notes.left_out(part, what, "kindlm demands all checks of a test")
                return
            for each in inner:
                if each.text("type") == "assert-set":
                    what = "an `assert-set` in another one"
                    self._notes.left_out(each, what, "Move its assertions into the outer one")
                else:
                    self._assert(each, variables, case, checks)
            return
        if part.number("weight") == 0:
            self._notes.left_out(part, "an assertion of weight 0", "It cannot fail")
            return
        for key, value in part.entries().items():
            if key not in READ_KEYS:
                instead = OTHER_ASSERTION_KEYS.get(key, "kindlm has no such option")
                self._notes.left_out(value, f"`{key}` of an assertion", instead)

        def grader() -> str | None:
            own = part.get("provider") or case.part.entries("options").get("provider")
            return None if own is None else self._targets.grader(own)

        try:
            different = add_assertion(part, self._files, variables, grader, checks)
        except NoTwinError as error:
            self._notes.left_out(part, error.what, error.instead)
            return
        if different:
            self._notes.different(part, f"`{part.text('type')}`", different)


def _tolerates(asserts: list[Part], threshold: Any) -> bool:
    """Tell whether a test passes although one of its assertions fails.

    It does if the weights of the others reach the threshold, and if nothing is demanded.
    """
    weights = [1.0 if (weight := each.number("weight")) is None else weight for each in asserts]
    counted = [weight for weight in weights if weight > 0]
    if type(threshold) not in (int, float) or not counted:
        return False
    return bool((sum(weights) - min(counted)) / sum(weights) >= threshold)
