"""Reads evals of OpenAI's open-source registry: YAML that names classes and files of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.generate.imported_tests import (
    JUDGED,
    PYTHON,
    Checks,
    Equivalent,
    ImportedSuite,
    pattern_of,
    prompt_section,
)
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, json_value

TITLE = "OpenAI Evals"


def reads(document: Part) -> bool:
    """Return whether a file is one of the registry."""
    return any(each.text("class") for each in document.entries().values())


def read(document: Part, files: Files) -> ImportedSuite:
    """Read the evals of a file; raise `LeftOutError` if no suite can be made of it.

    Each sample is a test. Its texts are variables of one of two prompts.
    """
    suite = ImportedSuite()
    prompts: dict[str, Any] = {}
    entries = document.entries()
    evals = {name: part for name, part in entries.items() if part.text("class")}
    for name, part in evals.items():
        with suite.noting(part, f"the eval {name}: "):
            _read_eval(suite, prompts, f"{name} " if len(evals) > 1 else "", part, files)
    suite.differ(document, "the eval names no model. Set `models` in the suite")
    head: dict[str | Comment, Any] = {
        Comment("The eval names no model: set yours."): None,
        "models": ["openai/gpt-4o"],
        "prompts": prompts,
    }
    descriptions = filter(None, (part.text("description") for part in entries.values()))
    name = next(iter(evals)).partition(".")[0]
    return suite.finish(document, TITLE, name, next(descriptions, None), head)


_PROMPTS = {
    "message": {"user": "{{input}}"},
    "with-system": {"system": "{{system}}", "user": "{{input}}"},
}


def _read_eval(
    suite: ImportedSuite, prompts: dict[str, Any], before: str, part: Part, files: Files
) -> None:
    """Add the samples of an eval, and their prompts; `before` begins the names of the tests."""
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
            suite.leave_out(each, f"`{key}`")
    # The registry keeps samples in the folder `data` beside `evals`.
    here = files.folder
    if here.resolve().name == "evals" and (here / "../data").is_dir():
        files = Files(here / "../data")
    for number, sample in enumerate(files.part(samples).items(), start=1):
        try:
            section = prompt_section(sample.entries().get("input", sample).value)
        except LeftOutError as error:
            suite.lose(sample, "a row", error)
            continue
        checks = Checks()
        with suite.noting(sample):
            CLASSES[kind].make(sample, given, checks)
            if CLASSES[kind].different:
                suite.differ(sample, f"`{kind}`. {CLASSES[kind].different}")
        prompt = "with-system" if "system" in section else "message"
        prompts[prompt] = _PROMPTS[prompt]
        variables = {{"user": "input"}.get(role, role): text for role, text in section.items()}
        test = {"name": f"{before}sample {number}", "prompt": prompt, "vars": variables}
        suite.add(sample, test, checks)


_ARGUMENTS = {"samples_jsonl", "ignore_case", "modelgraded_spec", "modelgraded_spec_args"}
_ARGUMENTS |= {"max_tokens", "num_few_shot", "few_shot_jsonl", "eval_type"}


def _ideals(sample: Part) -> list[str]:
    ideal = sample.get("ideal")
    found = [] if ideal is None else [each.value for each in ideal.items()]
    if not found or not all(isinstance(each, str) and each for each in found):
        raise LeftOutError("an `ideal` that is not text")
    return found


def _json_match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    try:
        values = [json_value(each) for each in _ideals(sample)]
    except ValueError:
        raise LeftOutError("an `ideal` that is not JSON") from None
    checks.add_schema({"enum": values})


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
        "`output.schema` with `enum`", _json_match, "A JSON null can match, too"
    ),
    "ModelBasedClassify": Equivalent(
        "`judge`, for the specifications `fact` and `closedqa`", _model_graded, JUDGED
    ),
}
"""The classes of the registry with an equivalent."""
