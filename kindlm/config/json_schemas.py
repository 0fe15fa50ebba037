"""Checks that the JSON Schemas of a configuration are valid, and refer to nothing outside.

With an invalid schema, each check would be undecided, after a paid call.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.document import Path
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.json_schema import format_checker, has_no_rule, load_jsonschema, meta_schema_issue
from kindlm.json_schema_keywords import UndecidableSchemaError, one_budget
from kindlm.patterns import excess_of
from kindlm.strict_json import parse_json
from kindlm.suggestions import suggest

# Known words that are no rules by themselves.
_OTHER_WORDS = (
    *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
    *("$defs", "definitions", "$comment", "title", "description", "default", "examples", "example"),
    *("readOnly", "writeOnly", "deprecated", "nullable", "discriminator", "xml", "externalDocs"),
    *("contentEncoding", "contentMediaType", "contentSchema"),
    *("then", "else", "minContains", "maxContains", "note", "notes"),
)
# Those of OpenAPI, which say how a value is stored or shown.
_UNCHECKED_FORMATS = {"", "int32", "int64", "float", "double", "byte", "binary", "password"}
_UNKNOWN_DIALECT: Any = object()
_HINT = "See https://json-schema.org/understanding-json-schema"


def parse_schema(name: str, data: bytes) -> Result[Any]:
    """Return the JSON Schema in a file's content; draft 2020-12 unless it has a `$schema`."""
    code = ErrorCode.SCHEMA_FILE_ERROR
    try:
        document = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        return Err(KindlmError(code, f'"{name}" is not JSON: {error}', "Correct the file"))
    if (fault := schema_fault(document)) is None:
        return Ok(document)
    return Err(KindlmError(code, f'"{name}" is not a valid JSON Schema: {fault}', _HINT))


def schema_fault(schema: Any) -> str | None:
    """Return what is wrong with a JSON Schema, or None."""
    if not isinstance(schema, (dict, bool)):
        return "it must be an object"
    try:
        return _fault_of(json.dumps(schema, sort_keys=True))
    except RecursionError:
        return "it is nested too deeply"


@lru_cache(maxsize=256)
def _fault_of(text: str) -> str | None:
    """Return the fault by the JSON text, to cache it: tests of a suite often have equal tools."""
    load_jsonschema()
    import jsonschema

    schema = json.loads(text)
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if dialect is not None and not isinstance(dialect, str):
        return "$schema must be text"
    default = jsonschema.Draft202012Validator if dialect is None else _UNKNOWN_DIALECT
    validator: Any = jsonschema.validators.validator_for(schema, default=default)
    if validator is _UNKNOWN_DIALECT:
        return f"the dialect {str(dialect)[:200]} is unknown"
    try:
        with one_budget():
            fault = meta_schema_issue(validator, schema, _pattern_checker())
            return fault or _bad_reference(schema, validator)
    except UndecidableSchemaError as error:
        return f"it cannot be checked: {error}"


def _pattern_checker() -> Any:
    """Return a format checker for patterns, which compiles them by `regex` as the checks do."""
    import jsonschema
    import regex

    checker = jsonschema.FormatChecker(formats=())

    def compiles(pattern: object) -> bool:
        if not isinstance(pattern, str):
            return True
        if (excess := excess_of(pattern)) is not None:
            raise UndecidableSchemaError(f"a pattern has {excess}")
        return regex.compile(pattern) is not None

    checker.checks("regex", raises=regex.error)(compiles)
    return checker


def _bad_reference(schema: Any, validator: Any) -> str | None:
    """Return the first reference that leads nowhere, or to no schema; fetches nothing."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    specification = specification_with(dialect, default=DRAFT202012)
    root = specification.create_resource(schema)
    uri = root.id() or ""
    resolver = REGISTRY.with_resource(uri, root).crawl().resolver(uri)
    names = ("$ref", "$dynamicRef", "$recursiveRef")
    keywords = [name for name in names if name in validator.VALIDATORS]
    todo = [(root, resolver)]
    seen = set[int]()
    while todo:
        resource, here = todo.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        for reference in map(contents.get, keywords):
            if not isinstance(reference, str):
                continue
            try:
                found = here.lookup(reference)
            except Unresolvable:
                return f"the reference {reference[:200]} does not exist in this file"
            if id(found.contents) not in seen:
                # It may be at a place where the dialect's rules expect no schema.
                fault = meta_schema_issue(validator, found.contents, _pattern_checker())
                if fault is not None:
                    return fault
            todo.append((specification.create_resource(found.contents), found.resolver))
        todo.extend((child, here.in_subresource(child)) for child in resource.subresources())
    return None


def report_inline_schema(path: Path, schema: Any, name: str, reporter: Reporter) -> None:
    """Report an invalid JSON Schema in the file itself; messages call it `name`."""
    if (fault := schema_fault(schema)) is not None:
        reporter.error(path, f"{name} is not a valid JSON Schema: {fault}", _HINT)
    elif has_no_rule(schema):
        message = f"{name} has no keyword of JSON Schema: any JSON would match it"
        reporter.error(path, message, "Add one, such as `type: object`")
    else:
        warn_of_ignored(path, schema, name, reporter)


def warn_of_ignored(path: Path, schema: Any, name: str, reporter: Reporter) -> None:
    """Warn of words and formats in a valid schema that check nothing; messages call it `name`.

    JSON Schema ignores unknown words and formats, so every value passes. Words that resemble no
    keyword may be intended, such as `x-...`.
    """
    for word, problem, hint, reason in _ignored(json.dumps(schema)):
        message = f'"{word}" in {name} {problem} and is ignored'
        reporter.warning(path, message, hint, reason=reason, value=word)


@lru_cache(maxsize=256)
def _ignored(text: str) -> list[tuple[str, str, str, str]]:
    """Return the words in the JSON text of a schema that are ignored.

    Each comes with the problem, a hint, and the reason of the warning.
    """
    from jsonschema import validators
    from referencing.jsonschema import DRAFT202012, specification_with

    schema = json.loads(text)
    drafts = [getattr(validators, draft) for draft in _DRAFTS]
    others = {word for draft in drafts for word in draft.VALIDATORS}
    own: Any = validators.validator_for(schema, default=drafts[0])
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    todo = [specification_with(dialect, default=DRAFT202012).create_resource(schema)]
    words, formats = set[str](), set[str]()
    while todo:
        part = todo.pop()
        if isinstance(part.contents, dict):
            todo.extend(part.subresources())
            words.update(part.contents.keys() - own.VALIDATORS.keys() - set(_OTHER_WORDS))
            # Those of numbers only say how they are stored, such as `uint32`.
            is_text = "string" in part.contents.get("type", "string")
            formats.add(part.contents.get("format", "") if is_text else "")
    found = []
    for word in sorted(words):
        if word in others:
            hint = "Write `$schema` with the draft of this keyword, or use one of this draft"
            found.append((word, "is a keyword of another draft", hint, "schema_draft"))
        elif meant := suggest(word, sorted({*_OTHER_WORDS, *others})):
            hint = f'Did you mean "{meant}"?'
            found.append((word, "is not a keyword of JSON Schema", hint, "schema_keyword"))
    known = format_checker().checkers
    for word in sorted(formats - known.keys() - _UNCHECKED_FORMATS):
        hint = f"Write a `pattern`, or one of these formats: {', '.join(sorted(known))}"
        found.append((word, "is a format that kindlm does not know", hint, "schema_format"))
    return found


_DRAFTS = (
    *("Draft202012Validator", "Draft201909Validator", "Draft7Validator"),
    *("Draft6Validator", "Draft4Validator", "Draft3Validator"),
)
