"""Checks that everything a configuration refers to exists, and that names are unique.

The functions read the plain values of the file, not the validated models, and ignore values of the
wrong type. So they also find the errors of a file that has schema errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import sections_of
from kindlm.config.files import FILE_KEYS, ReferencedFiles, report_file, report_schema
from kindlm.config.json_schemas import report_inline_schema
from kindlm.config.rows import MAX_ROWS, part_name
from kindlm.config.schema import NO_SERVER
from kindlm.config.simulated_tools import check_tools
from kindlm.config.templates import check_templates
from kindlm.document import Path, Raw, dotted, items, prompts_of, section
from kindlm.errors import DOCS, Err, ErrorCode, Ok
from kindlm.packages import own
from kindlm.plugins import Provider
from kindlm.suggestions import hint_for, suggest

_ALONE = frozenset({"command", "call"})
"""The keys of tests that need no model, prompt or input."""

_MAX_ERRORS = 20
"""The most rows of a file whose errors are reported."""


def check_references(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report every reference to something that does not exist, and every duplicate name."""
    _check_models(raw, reporter)
    check_unique(items(raw, "tests"), "name", "test", reporter)
    check_unique(items(raw, "serve"), "name", "service", reporter)
    judge = section(raw, "defaults").get("judgeModel")
    _check_judge(("defaults", "judgeModel"), judge, raw, reporter)
    servers = _mcp_server_ids(raw)
    names = {str(test.get("name")) for _, test in items(raw, "tests")}
    for path, test in items(raw, "tests"):
        _check_prompts(path, test, names, raw, reporter)
        _check_targets(path, test, raw, servers, reporter)
        for place, part, written in sections_of(test, path):
            for key, model in part.judges(written):
                _check_judge((*place, *key), model, raw, reporter)
        for place, tools in items(test, "tools"):
            server, at = section(tools, "mcp").get("server"), (*path, *place, "mcp", "server")
            if isinstance(server, str) and server and server not in servers:
                known = "Agents with `adapter: mcp`"
                _report_unknown(at, "server", server, servers, known, reporter)
        placed = (((*path, *place), tool) for place, tool in items(test, "tools"))
        check_unique(placed, "name", "tool", reporter)
        check_tools(path, test, reporter, files)
    _check_files(raw, reporter, files)
    _check_rows(raw, reporter, files)
    check_templates(raw, reporter, files)
    _check_template(raw, reporter, files)
    upload = section(raw, "upload")
    if upload.get("enabled") is True and upload.get("apiUrl", NO_SERVER) == NO_SERVER:
        message = "`upload.enabled` needs the address of your own history server"
        hint = "Add `apiUrl`, such as https://history.example.com, or set `enabled` to false"
        reporter.error(("upload", "enabled"), message, hint, reason="no_server")


def _ids(raw: Raw, *keys: str) -> list[str]:
    entries = (item for key in keys for _, item in items(raw, key))
    return [item["id"] for item in entries if isinstance(item.get("id"), str)]


def check_unique(
    entries: Iterator[tuple[Path, Raw]], key: str, what: str, reporter: Reporter
) -> None:
    """Report every name that an earlier entry has; `what` is the noun for an entry."""
    seen: dict[str, Path] = {}
    for path, item in entries:
        name = item.get(key)
        if not isinstance(name, str):
            continue
        if name in seen:
            kind = "agent" if path[0] == "agents" else what
            line = reporter.where((*seen[name], key)).line
            message = f'The {kind} "{name}" occurs twice: first on line {line}'
            hint = "Give each one a name of its own"
            reporter.error((*path, key), message, hint, reason=f"duplicate_{what}", value=name)
        seen.setdefault(name, path)


def _check_models(raw: Raw, reporter: Reporter) -> None:
    check_unique(chain(items(raw, "models"), items(raw, "agents")), "id", "model", reporter)
    providers = section(raw, "providers")
    models = list(items(raw, "models"))
    for path, model in models:
        provider = model.get("provider")
        if not isinstance(provider, str) or not provider or not providers or provider in providers:
            continue
        at, known = (*path, "provider"), "Configured providers"
        _report_unknown(at, "provider", provider, list(providers), known, reporter)
    are_judges = bool(models) and all(model.get("role") == "judge" for _, model in models)
    needs_target = any(_ALONE.isdisjoint(test) for _, test in items(raw, "tests"))
    only_servers = len(_mcp_server_ids(raw)) == len(list(items(raw, "agents")))
    if are_judges and needs_target and only_servers:
        message = "All models have `role: judge`: there is no model to test"
        hint = "Add a model without `role: judge`"
        hint += "; MCP servers only get a `call`" if raw.get("agents") else ""
        reporter.error(("models",), message, hint, reason="no_target")


def _check_prompts(path: Path, test: Raw, names: set[str], raw: Raw, reporter: Reporter) -> None:
    """Report unknown prompts, and those whose cases have the name of another case.

    Cases of one name would count as repeats.
    """
    prompts, chosen = section(raw, "prompts"), prompts_of(test)
    seen: set[str] = set()
    for place, prompt in chosen.items():
        at = (*path, *place)
        if prompt and prompt not in prompts and (prompts or _is_message(prompt)):
            # Inputs of tests have become prompts, too: comparing with all of them would take long.
            places = {name: reporter.place(("prompts", name)) for name in prompts}
            named = [name for name, written in places.items() if written.startswith("prompts")]
            known = "Configured prompts"
            if _is_message(prompt) and suggest(prompt, named) is None:
                known = "Did you mean `input`? `prompt` is the name of an entry of `prompts`."
                known += " These are"
            _report_unknown(at, "prompt", prompt, named, known, reporter)
        full, hint = part_name(str(test.get("name")), prompt), "Rename one of the two tests"
        message = f'The prompt "{prompt}" creates a second test named "{full}"'
        if prompt in seen:
            message = f'The prompt "{prompt}" occurs twice'
            hint = "Use `repeat` to run a test several times"
        if len(chosen) > 1 and (prompt in seen or full in names):
            reporter.error(at, message, hint, reason="duplicate_test", value=full)
        seen.add(prompt)


def _check_targets(path: Path, test: Raw, raw: Raw, servers: list[str], reporter: Reporter) -> None:
    """Report unknown and duplicate targets, judges, and targets for another kind of test."""
    chosen, is_call = test.get("models"), "call" in test
    if chosen == [] and "command" not in test:
        message = f'The test "{test.get("name")}" runs on no model'
        hint = "Remove `models` to run it on all of them, or use `skip: true`"
        reporter.error((*path, "models"), message, hint, reason="no_target")
    if is_call and not servers:
        message, hint = "There is no MCP server to call", "Add an agent with `adapter: mcp`"
        reporter.error((*path, "call"), message, hint, reason="no_target", at_key=True)
    judges = [item.get("id") for _, item in items(raw, "models") if item.get("role") == "judge"]
    ids = _ids(raw, "models", "agents")
    known = "Ids of configured models" + (" and agents" if raw.get("agents") else "")
    seen: set[str] = set()
    for index, model in enumerate(chosen if isinstance(chosen, list) else ()):
        if not isinstance(model, str):
            continue
        place, wrong = (*path, "models", index), None
        if model not in ids:
            if ids:  # otherwise, the missing `models` are reported
                _report_unknown(place, "model", model, ids, known, reporter)
        elif model in judges:
            wrong = ("judge_as_target", "has `role: judge`", "Remove one of them")
        elif model in seen:
            wrong = ("duplicate_target", "occurs twice", "Use `repeat` to run a test several times")
        elif is_call and model not in servers:
            wrong = ("unfit_target", "is not an MCP server: it gets no `call`", "Remove it here")
        elif model in servers and not is_call:
            hint = "Write `call:` in place of the prompt"
            wrong = ("unfit_target", "is an MCP server: it only gets a `call`", hint)
        if wrong is not None:
            reason, what, hint = wrong
            message = f'The model "{model}" {what}'
            reporter.error(place, message, hint, reason=reason, value=model)
        seen.add(model)


def _check_judge(path: Path, model: object, raw: Raw, reporter: Reporter) -> None:
    ids = _ids(raw, "models")
    if isinstance(model, str) and ids and model not in ids:
        known = "Ids of configured models"
        _report_unknown(path, "judge_model", model, ids, known, reporter)


def _report_unknown(
    path: Path, kind: str, name: str, names: list[str], known: str, reporter: Reporter
) -> None:
    """Report a name that is none of the `names`, which the words `known` introduce."""
    hint, reason = hint_for(name, names, known), f"unknown_{kind}"
    code = ErrorCode.CONFIG_VALIDATION_ERROR
    if kind == "provider" and own(Provider, name) is None:
        code = ErrorCode.PROVIDER_NOT_FOUND
    message = f'The {kind.rpartition("_")[2]} "{name}" is not configured'
    reporter.error(path, message, hint, reason=reason, code=code, value=name, available=names)


def check_requirements(raw: Raw, reporter: Reporter) -> None:
    """Report missing sections and keys that the tests need."""
    tests = [(path, test) for path, test in items(raw, "tests") if _ALONE.isdisjoint(test)]
    if not raw.get("models"):
        agents = raw.get("agents")
        only_servers = isinstance(agents, list) and len(_mcp_server_ids(raw)) == len(agents)
        if tests and (not agents or only_servers):
            instead = "; MCP servers only get a `call`" if agents else ", or `agent:` with its URL"
            _report_absent("models", raw, reporter, instead)
        elif judged := next(_judged(raw), None):
            message = f"{reporter.place(judged)} needs a judge, and no model is configured"
            hint = "Name one: `defaults: {judgeModel: openai/gpt-4o-mini}`"
            reporter.error(judged, message, hint, reason="no_judge")
    elif not raw.get("providers") and any("provider" in each for _, each in items(raw, "models")):
        _report_absent("providers", raw, reporter)
    names = (name for _, test in tests for name in prompts_of(test).values())
    if not raw.get("prompts") and not all(map(_is_message, names)):
        instead = ", or write what is said under `input:`"
        _report_absent("prompts", raw, reporter, instead)
    for path, test in tests:
        if not test.keys() & {"prompt", "prompts", "input"}:
            reporter.missing_key((*path, "input"))


def _is_message(prompt: str) -> bool:
    """Return whether a text looks like a message, not like the name of a prompt."""
    return len(prompt.split()) > 1


def _judged(raw: Raw) -> Iterator[Path]:
    for path, test in items(raw, "tests"):
        for place, part, written in sections_of(test, path):
            if any(part.judges(written)):
                yield place[:-1] if isinstance(place[-1], int) else place


def _report_absent(key: str, raw: Raw, reporter: Reporter, instead: str = "") -> None:
    if key not in raw:
        reporter.missing_key((key,), instead)
    elif isinstance(raw[key], (dict, list)):
        reporter.error((key,), f"{key} must have at least 1 entry, but is empty")


def _mcp_server_ids(raw: Raw) -> list[str]:
    return [
        str(agent.get("id"))
        for _, agent in items(raw, "agents")
        if agent.get("adapter", agent.get("type")) == "mcp"
    ]


def _check_files(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report missing files, files outside the folder, and files that are no valid JSON Schema."""
    for name, prompt in section(raw, "prompts").items():
        for key in FILE_KEYS:
            file = prompt.get(key) if isinstance(prompt, dict) else None
            if isinstance(file, str) and file:
                where: Path = ("prompts", name, key)
                found = files.text(file)
                report_file(where, file, found, reporter)
                if key == "userFile" and isinstance(found, Ok) and not found.value.strip():
                    message = f'"{file}" holds no message'
                    reporter.error(where, message, "Write what the user says", reason="file")
    for path, test in items(raw, "tests"):
        for place, part, written in sections_of(test, path):
            for at, kind, value in part.references(written):
                where = (*place, *at)
                if isinstance(value, dict):
                    report_inline_schema(where, value, dotted(where), reporter)
                elif isinstance(value, str) and value and kind == "schema":
                    report_schema(where, value, files, reporter)
                elif isinstance(value, str) and value:
                    report_file(where, value, files.function(value), reporter)


def _check_rows(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report the errors in files of rows, and rows whose cases have the same name."""
    names = {str(test.get("name")) for _, test in items(raw, "tests")}
    total = 0
    for path, test in items(raw, "tests"):
        name = test.get("varsFrom")
        if not isinstance(name, str) or not name:
            continue
        found = files.rows(name)
        report_file((*path, "varsFrom"), name, found, reporter)
        if isinstance(found, Err):
            continue
        for error in found.value.errors[:_MAX_ERRORS]:
            place, message = (*path, "varsFrom"), str(error)
            reporter.error_in_file(
                place, name, error.line, message, error.hint, reason="rows", source=error.source
            )
        rows, prompts = found.value.rows, dict.fromkeys(prompts_of(test).values())
        of_test = str(test.get("name"))
        parts = [part_name(of_test, each) for each in prompts] if len(prompts) > 1 else [of_test]
        if total <= MAX_ROWS < total + len(rows):
            message = f"The tests of this file have more than {MAX_ROWS:,} rows together"
            reporter.error((*path, "varsFrom"), message, "Split the suite", reason="limit")
        total += len(rows)
        for row, part in product(rows, parts):
            full = part_name(part, row.id)
            if full in names:
                message = f'The row "{row.id}" creates a second test named "{full}"'
                hint, at = "Rename one of the two tests", (*path, "name")
                reporter.error(at, message, hint, reason="duplicate_test", value=full)


def _check_template(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report a template of the compliance report that is missing, invalid or unused."""
    compliance, place = section(raw, "compliance"), ("compliance", "template")
    file = compliance.get("template")
    if not isinstance(file, str) or not file:
        return
    if compliance.get("framework") != "custom":
        message = "Only the framework `custom` uses a template"
        reporter.warning(place, message, reason="unused_template")
        return
    text = files.text(file)
    report_file(place, file, text, reporter)
    if isinstance(text, Err):
        return
    from jinja2 import Environment, TemplateSyntaxError  # few suites have a template

    try:
        Environment(autoescape=True).parse(text.value)
    except TemplateSyntaxError as error:
        problem = f"{file}, line {error.lineno}: {error.message}"
    except RecursionError:
        problem = f"{file}: it nests too deeply"
    else:
        return
    hint = f"What a template may hold: {DOCS}/how-to/compliance/"
    reporter.error(place, problem, hint, reason="template")
