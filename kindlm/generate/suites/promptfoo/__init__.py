"""Configurations of promptfoo: `promptfooconfig.yaml`."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.config.schema import MAX_TESTS
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import (
    PLACEHOLDER_AGENTS,
    Checks,
    Files,
    ImportedSuite,
    Notes,
    NoTwinError,
    Part,
    Tests,
    excerpt_of,
    head_comments,
    read_part,
    section_of,
)
from kindlm.generate.suites.promptfoo.assertions import (
    NO_TWIN,
    OTHER_ASSERTION_KEYS,
    READ_KEYS,
    TWINS,
    add_assertion,
)
from kindlm.generate.suites.promptfoo.targets import Target, Targets
from kindlm.generate.suites.promptfoo.templates import (
    Variables,
    file_value,
    replace_names,
    text_of,
    values_of,
)
from kindlm.strict_json import parse_json

TITLE = "promptfoo"

_READ = {"prompts", "providers", "targets", "tests", "defaultTest", "scenarios", "description"}
_READ |= {"evaluateOptions", "assertionTemplates", "$schema"}
_OPTIONS = {"repeat": "repeat", "maxConcurrency": "concurrency", "timeoutMs": "timeoutMs"}

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
_READ_OF_TESTS |= {"providers", "prompts", "providerOutput", "assertScoringFunction"}
_READ_OPTIONS = {"provider", "transform", "postprocess", "disableVarExpansion", "repeat"}
_READ_OPTIONS |= {"disableDefaultAsserts", "runSerially"}
_MESSAGE_OPTIONS = {"transformVars", "prefix", "suffix", "storeOutputAs"}
"""Options that change what is sent."""

_COLUMNS = ("__expected", "__prefix", "__suffix", "__description", "__threshold", "__metadata:")
"""Columns of CSV files that are not variables."""

_FILE = re.compile(r"[\w./*-]+\.(?:txt|md|j2|json|jsonl|ya?ml|csv|[cm]?[jt]s|py|sh|rb)", re.ASCII)
_EXPECTED = re.compile(r"(not-)?([a-z][a-z0-9:-]*)(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?")


def reads(document: Part) -> bool:
    """Tell whether a file is a configuration of promptfoo."""
    keys = set(document.value) if isinstance(document.value, dict) else set()
    runs = bool(keys & {"providers", "targets"}) and bool(keys & {"prompts", "tests", "redteam"})
    return "kindlm" not in keys and (runs or {"prompts", "tests"} <= keys)


def read(document: Part, files: Files) -> ImportedSuite:
    """Read a configuration; raise `NoTwinError` if no suite can be made of it."""
    return _Reader(document, files).suite()


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt: its name in the suite, its section, and the names that it has."""

    name: str
    section: Mapping[str, str]
    names: frozenset[str]


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
        self._prompts: list[_Prompt] = []

    def suite(self) -> ImportedSuite:
        document = self._document
        for key, part in document.entries().items():
            if key not in _READ:
                instead = OTHER_KEYS.get(key, "kindlm has no such setting")
                self._notes.left_out(part, f"`{key}`", instead)
        for part in (document.get("providers") or document.get("targets") or document).items():
            if part is not document:
                self._targets.add(part)
        self._read_prompts()
        default = self._default()
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
        head |= {"providers": self._targets.providers, "models": self._targets.models}
        if not self._targets.found:
            self._notes.left_out(document, "every provider", "Set `agents` or `models` yourself")
            head |= {Comment("Set the address of your agent here, or `models`."): None}
        head["agents"] = self._targets.agents or PLACEHOLDER_AGENTS[: not self._targets.found]
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
        options = self._document.get("evaluateOptions")
        for key, part in (options.entries() if options else {}).items():
            if key in _OPTIONS and type(part.value) is int and part.value > 0:
                found[_OPTIONS[key]] = part.value
            elif key not in ("showProgressBar", "cache"):
                self._notes.left_out(part, f"`{key}`", "Use the options of `kindlm test`")
        if "provider" in default.options:
            judge = self._targets.grader(default.options["provider"])
            found |= {} if judge is None else {"judgeModel": judge}
        return found

    # Prompts

    def _read_prompts(self) -> None:
        written = self._document.get("prompts")
        parts = [] if written is None else written.items()
        if written is None:
            parts = [Part("{{prompt}}", self._document.file, self._document.line_of)]
        elif isinstance(written.value, dict) and not {"id", "raw"} & written.value.keys():
            # Files, each with its label.
            parts = [
                Part({"id": file, "label": label.value}, label.file, label.line_of, label.keys)
                for file, label in written.entries().items()
            ]
        for part in parts:
            try:
                self._read_prompt(part)
            except NoTwinError as error:
                self._notes.left_out(part, f"a prompt with {error.what}", error.instead)

    def _read_prompt(self, part: Part) -> None:
        text = part.value if isinstance(part.value, str) else part.text("raw") or part.text("id")
        label = part.text("label") if isinstance(part.value, dict) else None
        if text is None:
            what = f"the form {excerpt_of(part.value)}"
            raise NoTwinError(what, "Write it as a text, or as messages in a file")
        name = text.removeprefix("file://")
        if text.startswith("file://") or _FILE.fullmatch(text):
            for file in self._files.named(name):
                texts = self._texts_in(file)
                stem = file.rpartition("/")[2].rpartition(".")[0]
                for number, each in enumerate(texts, start=1):
                    suffix = f"-{number}" if len(texts) > 1 else ""
                    self._add_prompt(f"{label or stem}{suffix}", each, {label, stem, text, file})
        elif re.match(r"(?:exec|langfuse|portkey|helicone|package)[:/]", text):
            raise NoTwinError(f"the source {excerpt_of(text)}", "Write the prompt into a file")
        else:
            self._add_prompt(label or "prompt", text, {label, text})

    def _texts_in(self, file: str) -> list[str]:
        if file.endswith((".csv", ".jsonl")):
            raise NoTwinError(f"the file {file}", "Write each prompt into a file of its own")
        text = file_value(f"file://{file}", self._files)
        if not isinstance(text, str):
            text = self._files.text(file)
        if file.endswith((".txt", ".j2")):
            return [each.strip() for each in re.split(r"^---\s*$", text, flags=re.MULTILINE)]
        return [text]

    def _add_prompt(self, label: str, text: str, names: set[str | None]) -> None:
        section = _section(text)
        found: dict[str, str] = {}
        for role, said in section.items():
            found[role] = replace_names(said, _placeholder)
        taken = {each.name for each in self._prompts}
        name, number = label, 1
        while name in taken:
            number += 1
            name = f"{label}-{number}"
        known = frozenset({label, name, *(each for each in names if each)})
        self._prompts.append(_Prompt(name, found, known))

    # Tests

    def _default(self) -> _Case:
        part = self._document.get("defaultTest")
        empty = _Case(self._document, {}, [], {}, None)
        if part is None:
            return empty
        if isinstance(part.value, str):
            try:
                part = self._files.part(part.value.removeprefix("file://"))
            except NoTwinError as error:
                self._notes.left_out(part, error.what, error.instead)
                return empty
        return self._case(part, empty)

    def _case(self, part: Part, default: _Case) -> _Case:
        entries = part.entries()
        options = part.get("options")
        own = options.entries() if options else {}
        asserts = [self._dereferenced(each) for each in _items(part.get("assert"))]
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
        for part in _items(self._document.get("tests")):
            for each in self._tests_in(part):
                yield from self._read_case(each, default)
        for scenario in _items(self._document.get("scenarios")):
            if isinstance(scenario.value, str):
                what = f"the scenarios in {excerpt_of(scenario.value)}"
                self._notes.left_out(scenario, what, "Move them into this file")
                continue
            configs = (
                each for config in _items(scenario.get("config")) for each in self._tests_in(config)
            )
            for config in configs:
                for base in self._read_case(config, default):
                    for part in _items(scenario.get("tests")):
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
                    yield from self._rows(file)
                elif file.endswith((".yaml", ".yml", ".json", ".jsonl")):
                    yield from self._files.part(file).items()
                else:
                    instead = "Write them into a YAML, JSON or CSV file: kindlm runs no code here"
                    self._notes.left_out(part, f"the tests of {excerpt_of(file)}", instead)
        except NoTwinError as error:
            self._notes.left_out(part, error.what, error.instead)

    def _rows(self, file: str) -> Iterator[Part]:
        """Yield the rows of a CSV file as tests."""
        reader = csv.reader(io.StringIO(self._files.text(file), newline=""))
        header = [each.strip() for each in next(reader, [])]
        after = reader.line_num
        for key in header:
            if key.startswith("__") and not key.startswith(_COLUMNS):
                what = f"the column {excerpt_of(key)}"
                self._notes.left_out(Part(None, file), what, "kindlm has no such setting")
        for row in reader:
            line, after = after + 1, reader.line_num
            test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
            for key, value in zip(header, row, strict=False):
                _read_column(key, value, test)
            yield Part(test, file, _at(line))

    def _add(self, case: _Case) -> None:
        for key in case.part.entries().keys() - _READ_OF_TESTS:
            self._notes.left_out(case.part, f"`{key}` of a test", "kindlm has no such setting")
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
        description = case.part.text("description")
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
            if len(those) != len(targets) or (self._targets.models and self._targets.agents):
                test["models"] = [each.id for each in those]
            test |= self._vars_of(prompts, variables, case.part)
            test |= self._tags(case)
            if type(repeat := getattr(case.options.get("repeat"), "value", None)) is int:
                test["repeat"] = repeat
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
        metadata = case.part.get("metadata")
        tags = []
        for key, part in (metadata.entries() if metadata else {}).items():
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
            chosen = [each for each in self._targets.found if _fits(name or "", each.names)]
            if not chosen:
                what = f"the provider {excerpt_of(part.value)} of a test"
                raise NoTwinError(what, "Add it to `models` or `agents`")
            found += chosen
        return found

    def _prompts_of(self, case: _Case, target: Target) -> list[_Prompt]:
        own = case.entries.get("prompts")
        filters = [target.prompts, None if own is None else [str(p.value) for p in own.items()]]
        return [
            each
            for each in self._prompts
            if all(
                names is None or any(_fits(name, each.names) for name in names) for names in filters
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
            inner = [self._dereferenced(each) for each in _items(part.get("assert"))]
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
        for key in part.entries().keys() - READ_KEYS:
            instead = OTHER_ASSERTION_KEYS.get(key, "kindlm has no such option")
            self._notes.left_out(part, f"`{key}` of an assertion", instead)

        def grader() -> str | None:
            options = case.part.get("options")
            own = part.get("provider") or (options.get("provider") if options else None)
            return None if own is None else self._targets.grader(own)

        try:
            different = add_assertion(part, self._files, variables, grader, checks)
        except NoTwinError as error:
            self._notes.left_out(part, error.what, error.instead)
            return
        if different:
            self._notes.different(part, f"`{part.text('type')}`", different)


def _at(line: int) -> Callable[[object], int]:
    return lambda _: line


def _items(part: Part | None) -> list[Part]:
    return [] if part is None else part.items()


def _placeholder(name: str) -> str:
    if name.startswith(("env.", "serve.")):
        raise NoTwinError(f"{{{{{name}}}}}", "Use a variable of the tests")
    return f"{{{{{name}}}}}"


def _fits(wanted: str, names: frozenset[str]) -> bool:
    """Tell whether a filter means something by one of its names: whole, or as a group."""
    group = wanted.removesuffix("*").removesuffix(":")
    return any(name in (wanted, group) or name.startswith(f"{group}:") for name in names)


def _tolerates(asserts: list[Part], threshold: Any) -> bool:
    """Tell whether a test passes although one of its assertions fails.

    It does if the weights of the others reach the threshold, and if nothing is demanded.
    """
    weights = [1.0 if (weight := each.number("weight")) is None else weight for each in asserts]
    counted = [weight for weight in weights if weight > 0]
    if type(threshold) not in (int, float) or not counted:
        return False
    return bool((sum(weights) - min(counted)) / sum(weights) >= threshold)


def _section(text: str) -> dict[str, str]:
    """Return the section of a prompt: of a text, or of messages as JSON or YAML.

    Raises:
        NoTwinError: It holds what kindlm cannot send before the answer.
    """
    messages: Any = None
    if text.lstrip().startswith(("[", "{")):
        try:
            messages = parse_json(text)
        except ValueError:
            messages = None
    elif re.match(r"-\s+role\s*:", text.lstrip()):
        read = read_part("prompt.yaml", text.encode())
        messages = getattr(getattr(read, "value", None), "value", None)
    is_chat = isinstance(messages, list) and all(
        isinstance(each, dict) and "role" in each for each in messages
    )
    return section_of(messages) if is_chat and messages else {"user": text}


def _read_column(key: str, value: str, test: dict[str, Any]) -> None:
    """Put a cell of a CSV file into its test."""
    if key.startswith("__expected"):
        test["assert"] += [_expected(value.strip())] if value.strip() else []
    elif key in ("__prefix", "__suffix"):
        test["options"][key.removeprefix("__")] = value
    elif key == "__description":
        test["description"] = value
    elif key == "__threshold" and re.fullmatch(r"\d+(\.\d+)?", value):
        test["threshold"] = float(value)
    elif key.startswith("__metadata:"):
        name = key.removeprefix("__metadata:")
        is_list = name.endswith("[]")
        test["metadata"][name.removesuffix("[]")] = value.split(",") if is_list else value
    elif not key.startswith("__"):
        test["vars"][key] = value


_THRESHOLDS = {"similar": 0.8, "answer-relevance": 0.75, "context-faithfulness": 0.75}
"""What cells of CSV files mean without a threshold."""


def _expected(text: str) -> dict[str, Any]:
    """Return the assertion in a cell of a CSV file: `type(threshold):value`, or what is equal."""
    for prefix, kind in (("fn:", "javascript"), ("eval:", "javascript"), ("grade:", "llm-rubric")):
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix).strip()}
    found = _EXPECTED.fullmatch(text)
    if found is None or found[2] not in TWINS.keys() | NO_TWIN.keys():
        return {"type": "equals", "value": text}
    threshold = float(found[3]) if found[3] else _THRESHOLDS.get(found[2])
    assertion = {"type": f"{found[1] or ''}{found[2]}", "threshold": threshold}
    value = None if found[4] is None else found[4].strip()
    return {key: each for key, each in {**assertion, "value": value}.items() if each is not None}
