"""Reads evals of OpenAI: the open-source registry, and JSON of the platform's Evals API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.generate.imported_tests import (
    EMBEDDED,
    JUDGED,
    PYTHON,
    STRIPPED,
    Checks,
    Equivalent,
    ImportedSuite,
    message_text,
    pattern_of,
    prompt_section,
    settings_of,
)
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, json_value

TITLE = "OpenAI Evals"

_PROMPT = {"system": "{{system}}", "user": "{{input}}"}


def reads(document: Part) -> bool:
    """Return whether a file is an eval of the registry or of the platform."""
    is_platform = document.get("testing_criteria") is not None
    return is_platform or any(each.text("class") for each in document.entries().values())


def read(document: Part, files: Files) -> ImportedSuite:
    """Read an eval; raise `LeftOutError` if no suite can be made of it."""
    reader = _Reader(document, files, ImportedSuite(document.file, TITLE))
    is_platform = document.get("testing_criteria") is not None
    return _read_platform(reader) if is_platform else _read_registry(reader)


Graders = Sequence[tuple[str, Equivalent | None, Part, Any]]
"""The graders of a row: the type, its equivalent, and two arguments of `Equivalent.make`."""


@dataclass(slots=True)
class _Reader:
    """Makes each row a test, in both formats. Its texts are variables of one of two prompts."""

    document: Part
    files: Files
    suite: ImportedSuite
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(
        self,
        part: Part,
        name: str,
        messages: Any,
        graders: Graders,
        fill: Callable[[str], str] = str,
    ) -> None:
        """Add a row as a test, with its messages filled in."""
        with self.suite.losing(part, "a row"):
            section = {role: fill(text) for role, text in prompt_section(messages).items()}
            checks = Checks()
            for kind, equivalent, place, given in graders:
                if equivalent is None:
                    self.suite.leave_out(place, f"the grader `{kind}`", PYTHON)
                    continue
                with self.suite.noting(place):
                    equivalent.make(place, given, checks)
                    if equivalent.different:
                        self.suite.differ(place, f"`{kind}`. {equivalent.different}")
            variables = {{"user": "input"}.get(role, role): text for role, text in section.items()}
            prompt = "with-system" if "system" in section else "message"
            self.prompts[prompt] = {role: _PROMPT[role] for role in section}
            self.suite.add(part, {"name": name, "prompt": prompt, "vars": variables}, checks)

    def finished(
        self, name: str, description: str | None, model: Mapping[str, Any]
    ) -> ImportedSuite:
        head: dict[str | Comment, Any] = {}
        if not model:
            what = "the eval names no model. Set `models` in the suite"
            self.suite.differ(self.document, what)
            head = {Comment("The eval names no model: set yours."): None}
        head |= {"models": [model or "openai/gpt-4o"], "prompts": self.prompts}
        return self.suite.finish(name, description, head)


# The registry


def _ideals(sample: Part) -> list[str]:
    found = [each.value for each in sample.items("ideal")]
    if not found or not all(isinstance(each, str) and each for each in found):
        raise LeftOutError("an `ideal` that is not text")
    return found


def _json_match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    try:
        values = [json_value(each) for each in _ideals(sample)]
    except ValueError:
        raise LeftOutError("an `ideal` that is not JSON") from None
    checks.add_schema({"enum": values} if len(values) > 1 else {"const": values[0]})


def _model_graded(sample: Part, arguments: Mapping[str, Any], checks: Checks) -> None:
    specification = str(arguments.get("modelgraded_spec")).rpartition("/")[2]
    given = arguments.get("modelgraded_spec_args")
    criterion: Any = None
    if specification == "fact":
        facts = "; or: ".join(_ideals(sample))
        criterion = f"The answer does not contradict this answer of an expert: {facts}"
    elif specification == "closedqa":
        criterion = given.get("criteria") if isinstance(given, Mapping) else sample.text("criteria")
    if not isinstance(criterion, str) or not criterion:
        what = f"the model-graded specification {excerpt_of(specification)}"
        raise LeftOutError(what, "Write its question as a criterion of `judge`")
    checks.add("judge", {"criteria": criterion})


CLASSES: dict[str, Equivalent] = {
    "Match": Equivalent(
        "`output.regex` with `\\A`",
        lambda sample, _, checks: checks.add_pattern(rf"\A{pattern_of(*_ideals(sample))}"),
    ),
    "Includes": Equivalent(
        "`output.regex`, or `contains` with `ignore_case`",
        lambda sample, arguments, checks: checks.add_text(
            *_ideals(sample), ignores_case=bool(arguments.get("ignore_case"))
        ),
    ),
    "FuzzyMatch": Equivalent(
        "`output.contains`",
        lambda sample, _, checks: checks.add_text(*_ideals(sample), ignores_case=True),
        "kindlm compares punctuation and articles, too, and an answer that is a part of the ideal"
        " one fails",
    ),
    "JsonMatch": Equivalent(
        "`output.schema` with `const`", _json_match, "A JSON null can match, too"
    ),
    "ModelBasedClassify": Equivalent(
        "`judge`, for the specifications `fact` and `closedqa`", _model_graded, JUDGED
    ),
}
"""The classes of the registry with an equivalent."""


def _read_registry(reader: _Reader) -> ImportedSuite:
    """Read a file of the registry: YAML that names classes and files of samples."""
    document = reader.document.entries()
    evals = {name: part for name, part in document.items() if part.text("class")}
    for name, part in evals.items():
        with reader.suite.noting(part, f"the eval {name}: "):
            _read_eval(reader, f"{name} " if len(evals) > 1 else "", part)
    descriptions = filter(None, (part.text("description") for part in document.values()))
    return reader.finished(next(iter(evals)).partition(".")[0], next(descriptions, None), {})


def _read_eval(reader: _Reader, name: str, part: Part) -> None:
    kind = (part.text("class") or "").rpartition(":")[2]
    arguments = part.entries("args")
    given = {key: each.value for key, each in arguments.items()}
    samples = given.get("samples_jsonl")
    if kind not in CLASSES:
        raise LeftOutError(f"the class {kind}", PYTHON)
    if given.get("num_few_shot"):
        raise LeftOutError("`num_few_shot`", "Write the examples into the system text")
    if not isinstance(samples, str) or "://" in samples:
        raise LeftOutError("samples that are not in a file", "Download them into a file")
    for key, each in arguments.items():
        if key not in _ARGUMENTS:
            reader.suite.leave_out(each, f"`{key}`")
    # The registry keeps samples in the folder `data` beside `evals`.
    here = reader.files.folder
    in_registry = here.resolve().name == "evals" and (here / "../data").is_dir()
    files = Files(here / "../data") if in_registry else reader.files
    listed = files.part(samples)
    if in_registry:
        listed = replace(listed, file=f"../data/{samples}")  # places are relative to the suite
    for number, sample in enumerate(listed.items(), start=1):
        messages = sample.entries().get("input", sample).value
        graders = [(kind, CLASSES[kind], sample, given)]
        reader.add(sample, f"{name}sample {number}", messages, graders)


_ARGUMENTS = {"samples_jsonl", "ignore_case", "modelgraded_spec", "modelgraded_spec_args"}
_ARGUMENTS |= {"max_tokens", "num_few_shot", "few_shot_jsonl", "eval_type"}


# The platform

_ANSWER = re.compile(r"\{\{\s*sample\.output_text\s*\}\}")
_VARIABLE = re.compile(r"\{\{([^{}]*)\}\}")


def _filled(template: str, item: Any, answer: str | None = None) -> str:
    """Return a template filled in with the `item` of a row; `answer` replaces that to the row.

    Raises:
        LeftOutError: it refers to anything but a scalar of the row.
    """

    def value(found: re.Match[str]) -> str:
        if answer is not None and _ANSWER.fullmatch(found[0]):
            return answer
        value: Any = {"item": item}
        for key in found[1].strip().split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None or isinstance(value, Mapping | list):
            raise LeftOutError(f"the template {excerpt_of(found[0])}", "Name a text of the row")
        return value if isinstance(value, str) else str(value).lower()

    return _VARIABLE.sub(value, template)


def _reference(grader: Part, item: Any) -> str:
    if not _ANSWER.fullmatch(grader.text("input") or ""):
        raise LeftOutError("a check of something else than `{{sample.output_text}}`", PYTHON)
    reference = grader.text("reference")
    if reference is None:
        raise LeftOutError("a `reference` that is not text", "Write it as text")
    return _filled(reference, item)


def _string_check(grader: Part, item: Any, checks: Checks) -> None:
    operation = grader.text("operation")
    reference = _reference(grader, item)
    if operation in ("eq", "ne"):
        checks.add_equal(reference, negated=operation == "ne")
    elif operation in ("like", "ilike"):
        checks.add_text(reference, ignores_case=operation == "ilike")
    else:
        raise LeftOutError(f"the operation {excerpt_of(operation)}", PYTHON)


def _text_similarity(grader: Part, item: Any, checks: Checks) -> None:
    if grader.text("evaluation_metric") != "cosine":
        raise LeftOutError(f"the metric `{grader.text('evaluation_metric')}`", PYTHON)
    checks.add_similar(_reference(grader, item), grader.number("pass_threshold"))


def _instructions(grader: Part, item: Any) -> str:
    contents = (each.get("content") for each in grader.items("input"))
    templates = [message_text(part.value) for part in contents if part is not None]
    text = "\n\n".join(_filled(each, item, "(the agent's last answer)") for each in templates)
    if not text.strip():
        raise LeftOutError("a grader without instructions")
    return text


def _label_model(grader: Part, item: Any, checks: Checks) -> None:
    passing = ", ".join(str(each.value) for each in grader.items("passing_labels"))
    if not passing:
        raise LeftOutError("a grader without `passing_labels`")
    criterion = f"By these instructions, the label is one of: {passing}.\n\n"
    checks.add("judge", {"criteria": criterion + _instructions(grader, item)})


def _score_model(grader: Part, item: Any, checks: Checks) -> None:
    ends = [each.value for each in grader.items("range")] or [0, 1]
    threshold = grader.number("pass_threshold")
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends) or ends[0] >= ends[1]:
        raise LeftOutError("a `range` without two ends", "Write it as [0, 1]")
    low, high = ends
    judge: dict[str, Any] = {"criteria": _instructions(grader, item)}
    if threshold is not None:
        judge["minScore"] = round(min((threshold - low) / (high - low), 1), 6)
        if judge["minScore"] <= 0:
            raise LeftOutError("a threshold that every score reaches", "It cannot fail")
    checks.add("judge", judge)


GRADERS: dict[str, Equivalent] = {
    "string_check": Equivalent(
        "`output.equals` (`eq`), `notRegex` (`ne`), `regex` (`like`) or `contains` (`ilike`)",
        _string_check,
        STRIPPED,
    ),
    "text_similarity": Equivalent(
        "`output.similarTo`, for the metric `cosine`", _text_similarity, EMBEDDED
    ),
    "label_model": Equivalent("`judge`", _label_model, JUDGED),
    "score_model": Equivalent("`judge` with `minScore`", _score_model, JUDGED),
}
"""The graders of the platform with an equivalent."""


def _read_platform(reader: _Reader) -> ImportedSuite:
    """Read an eval of the platform with the data source of a run: JSON."""
    document = reader.document
    source = document.get("data_source")
    if source is None:
        raise LeftOutError("no data of a run", "Add the `data_source` of a run to the file")
    model: dict[str, Any] = {}
    if name := source.text("model"):
        params = settings_of(source.entries("sampling_params"), reader.suite)
        model = {"id": name, "provider": "openai", "model": name}
        model |= {"params": params} if params else {}
    messages = source.get("input_messages")
    template = None if messages is None else messages.get("template")
    if template is None:
        raise LeftOutError("no `template` of `input_messages`", "Write the messages as one")
    content = source.get("source") or source
    rows = content.get("content")
    if content.text("type") == "file_id":
        rows = reader.files.part(f"{content.text('id')}.jsonl")
    if rows is None:
        what = f"the source {excerpt_of(content.text('type'))}"
        raise LeftOutError(what, "Write the rows as `file_content`")
    for number, row in enumerate(rows.items(), start=1):
        item = (row.get("item") or row).value
        graders = [
            (kind, GRADERS.get(kind), grader, item)
            for grader in document.items("testing_criteria")
            for kind in [grader.text("type") or ""]
        ]
        reader.add(row, f"row {number}", template.value, graders, partial(_filled, item=item))
    return reader.finished(document.text("name") or "eval", None, model)
