"""Writes tests, from a plan of a model, recordings or attacks: the work of `kindlm gen`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kindlm.cli.commands.gen import GenOptions
from kindlm.cli.console import fail, note, or_fail, refuse, show, warn
from kindlm.cli.history import find_execution, open_recorded, open_view, project_here
from kindlm.cli.options import refuse_together
from kindlm.cli.run_recording import record_run
from kindlm.config.compile import compile_agent
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.run import RunOptions
from kindlm.generate.corpora import attack_suites, read_attacks
from kindlm.generate.generation_script import GenerationScript, generation_suite
from kindlm.generate.recorded_suite import Target, recorded_suites
from kindlm.generate.recordings import MAX_BYTES, read_recordings
from kindlm.generate.recordings.own_run import read_execution, recorded_target
from kindlm.generate.stand_ins import StandIns
from kindlm.generate.suite_text import check_folder, slug, write_file
from kindlm.generate.test_plan import Order, parse_categories, spoken
from kindlm.patterns import PatternError
from kindlm.plan import Selection
from kindlm.providers.provider_registry import check_settings
from kindlm.recording.history_file import new_run_id
from kindlm.recording.project import Project, project_name, run_environment
from kindlm.recording.request import RunRequest
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.reports.figures import money
from kindlm.reports.untrusted import one_line
from kindlm.scenarios.configuration import (
    LlmTable,
    LoadedConfiguration,
    agent_at,
    load_configuration,
    provider_fault,
    secret_in_url,
)
from kindlm.wording import count
from kindlm_store import Redactor

_PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

_LONGEST_PROMPT = 60_000

_PLANNING = ("description", "system_prompt", "categories", "seed")
"""The options that only apply to tests that a model plans."""

_DEFAULT_FORM = (
    'The agent at --agent is asked in the default form, {"message": "…"}. If it takes another one, '
    "or headers, name it in kindlm.toml, [agent], and leave out --agent."
)


def write_tests(options: GenOptions) -> int:
    """Write tests that a model plans, and return the exit code."""
    project = project_here(options.database)
    environ = run_environment([project.root], os.environ)
    loaded = load_configuration(project.root, environ)
    if loaded.config is None:
        fail([found.error for found in loaded.diagnostics])
    order = _order(options, project, loaded)
    llm = _llm(options, loaded)
    suite = generation_suite(order, llm, project_name(project.root))
    redact = Redactor(suite_secrets(environ, [suite]))
    if order.written_agent is not None and redact(order.written_agent) != order.written_agent:
        fail([secret_in_url()])
    for settings in suite.providers.values():
        or_fail(check_settings(settings, environ))
    check_folder(order.folder)
    script = GenerationScript(order, llm.model, redact, note)
    cases = tuple(replace(case, script=script) for case in suite.cases)
    request = RunRequest(
        suites=(replace(suite, cases=cases),),
        skipped=(),
        selection=Selection(),
        root=project.root,
        database=project.database,
        environ=environ,
        options=RunOptions(paths=[]),
        generating=True,
    )
    run = new_run_id()
    record_run(request, run, progress=False)
    if code := _report(request, run, script, options):
        return code
    if order.agent is None:
        note("They need an agent: name it in kindlm.toml, [agent].")
    if loaded.config.llm is None:
        note(
            f"They need a judge: write [llm] into kindlm.toml, with provider = "
            f'"{llm.provider}" and model = "{llm.model}".'
        )
    sys.stdout.write(f"\nRun them: kindlm test {shlex.quote(one_line(str(order.folder)))}\n")
    return 0


def _order(options: GenOptions, project: Project, loaded: LoadedConfiguration) -> Order:
    categories = or_fail(parse_categories(options.categories))
    agent = loaded.agent
    if (url := options.agent) is not None:
        if "://" not in url:
            hint = (
                "Write a URL. Name an object of Python in kindlm.toml, [agent], with"
                ' type = "python" and url = "module:name", and leave out --agent.'
            )
            refuse(f"--agent {one_line(url)} is not a URL.", hint)
        agent = compile_agent(or_fail(agent_at(url)), project.root)
    prompt = None
    if (file := options.system_prompt) is not None:
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            refuse(f"The system prompt {file} is not UTF-8.", "Save the file in UTF-8.")
        if len(text) > _LONGEST_PROMPT:
            warn(f"Only the first {_LONGEST_PROMPT:,} characters of {file} are read.")
        prompt = spoken(text, _LONGEST_PROMPT)
    if agent is None and not options.description and prompt is None:
        refuse(
            "kindlm gen does not know the agent.",
            "Give its address (--agent URL) or say what it does (--description TEXT).",
        )
    return Order(
        count=options.count,
        categories=categories,
        form=options.form,
        folder=Path(options.output),
        root=project.root,
        description=options.description,
        system_prompt=prompt,
        agent=agent,
        written_agent=options.agent,
        seed=options.seed,
        force=options.force,
    )


def _llm(options: GenOptions, loaded: LoadedConfiguration) -> LlmTable:
    """Return the model that plans the tests: that of the options, else that configured."""
    configured = loaded.config.llm if loaded.config else None
    if configured is not None and options.provider in (None, configured.provider):
        changed = {} if options.model is None else {"model": options.model}
        return configured.model_copy(update=changed)
    if options.provider is None or options.model is None:
        refuse(
            "There is no model that could plan the tests.",
            "Name it in kindlm.toml: [llm] with provider and model; or with --provider and"
            " --model.",
        )
    named = LlmTable(provider=options.provider, model=options.model)
    fault = provider_fault(named)
    if fault is not None:
        refuse(f"{fault[0]}.", fault[1], code=ErrorCode.PROVIDER_NOT_FOUND)
    return named


def _report(request: RunRequest, run: str, script: GenerationScript, options: GenOptions) -> int:
    """Print the written files, or why there are none; return the exit code."""
    with open_recorded(request.database, run) as view:
        if not script.files:
            show(
                KindlmError(ErrorCode[execution.error_code], execution.error or "", execution.hint)
                for test in view.tests()
                for execution in view.executions(test)
                if execution.error_code is not None
            )
            if script.is_unheard and options.agent is not None:
                note(_DEFAULT_FORM)
            note(f"Requests and answers: kindlm show {run} 1 --verbose")
            return 1
        for path, about in script.files.items():
            sys.stdout.write(f"{one_line(str(path))}  {one_line(about)}\n")
        for line in script.left_out:
            note(f"Left out: {line}")
        missing = options.count + 1 - len(script.files)
        if missing > 0:
            note(f"The plan held {count(missing, 'test')} fewer than requested.")
        cost = "; what it cost is not known"
        if (paid := view.summary.paid).total_usd is not None:
            cost = f": it cost {money(paid.total_usd)}{' or more' if paid.unknown else ''}"
        note(f"Recorded as run {run}{cost}.")
    return 0


def write_recorded(options: GenOptions) -> int:
    """Write suites that test for recorded behaviour, and return the exit code."""
    trace = options.from_trace
    refuse_together("--from-run" if trace is None else "--from-trace", options, *_PLANNING)
    if trace is not None:
        refuse_together("--from-trace", options, "from_run")
    target = _target_of(options)
    project = project_here(options.database)
    if trace is not None:
        with trace.open("rb") as opened:
            recordings = or_fail(read_recordings(opened.read(MAX_BYTES + 1), trace))
        if not recordings:
            refuse(f"{trace} holds no trace.", "Export one that has ended.")
        origin = trace.name
    else:
        assert options.from_run is not None
        run, number = options.from_run
        with open_view(options.database, run) as view:
            execution = or_fail(find_execution(view, number))
            recordings = [read_execution(view.db, execution)]
            recorded = recorded_target(view.db, execution, project.root, Path(options.output))
        origin = f"run {view.id}, execution {execution.number}"
        target = replace(recorded, model=target.model) if target.written is None else target
    redact = Redactor(suite_secrets(run_environment([project.root], os.environ), []))
    stand_ins = StandIns(redact, keep_personal_data=options.keep_personal_data)
    try:
        recordings = [
            replace(stand_ins.recording(each), failed=options.failed or each.failed)
            for each in recordings
        ]
    except PatternError as error:
        refuse(f"Personal data cannot be found: {error}.", "Use --keep-personal-data.")
    stem = recordings[0].name if trace is None else trace.stem
    file = Path(options.output, f"{slug(stem)}.yaml")
    made = recorded_suites(recordings, target, redact(origin), file)
    for line in made.left_out:
        note(f"Left out: {one_line(line, 500)}")
    if not made.texts:
        note("No test was written.")
        return 1
    files = _write_suites(options, made.texts, file)
    for test in made.unfinished:
        note(f"Skipped until you write its criterion: {one_line(test)}")
    if stand_ins.replaced:
        kinds = (f"{count(number, kind)}" for kind, number in stand_ins.replaced.items())
        note(f"Replaced: {', '.join(kinds)}.")
    if not options.keep_personal_data:
        note("Names, addresses and dates of birth are not recognised: read the file.")
    _print_command(files, len(made.names) - len(made.unfinished))
    return 0


def write_attacks(options: GenOptions, source: str) -> int:
    """Write a suite of attacks and return the exit code."""
    refuse_together("--from", options, "from_trace", "from_run", *_PLANNING)
    target = _target_of(options)
    found = or_fail(read_attacks(source, options.count + 1))
    has_more = len(found.attacks) > options.count
    attacks = found.attacks[: options.count]
    for why, number in found.left_out.items():
        note(f"Left out: {count(number, 'attack')} {why}.")
    if not attacks:
        refuse(f"{source} has no attack that can become a test.", "Choose another name.")
    if target.is_agent and any(attack.tools for attack in attacks):
        hint = "Pass --provider and --model in place of --agent."
        refuse(f"The attacks of {source} need simulated tools, as models have.", hint)
    if target.model is None:
        hint = "Pass --provider and --model. With --agent, the model only judges."
        refuse("There is no model for the tests.", hint)
    file = Path(options.output, f"{slug(source)}.yaml")
    files = _write_suites(options, or_fail(attack_suites(source, attacks, target, file)), file)
    if has_more:
        note(f"{source} has more attacks: pass --count.")
    _print_command(files, len(attacks))
    return 0


def _write_suites(options: GenOptions, texts: Iterable[str], file: Path) -> list[Path]:
    """Write suites to numbered files, print their paths, and return these."""
    files = list[Path]()
    for number, text in enumerate(texts, 1):
        name = file if number == 1 else file.with_stem(f"{file.stem}_{number}")
        files.append(write_file(name, text, force=options.force))
    for written in files:
        sys.stdout.write(f"{one_line(str(written))}\n")
    return files


def _print_command(files: Iterable[Path], tests: int) -> None:
    """Print the command that runs suites; `tests` is their number of unskipped tests."""
    words = " ".join(shlex.quote(one_line(str(each))) for each in files)
    run = f"Run {count(tests, 'test')}" if tests else "Then run"
    sys.stdout.write(f"\n{run}: kindlm test {words}\n")


def _target_of(options: GenOptions) -> Target:
    """Return the target in the options; end the command if they are invalid."""
    if (options.provider is None) != (options.model is None):
        refuse("--provider and --model go together.", "Pass both, or neither.")
    model = None if options.model is None else f"{options.provider}/{options.model}"
    if options.agent is None:
        return Target(None if model is None else {"model": model}, model=model)
    agent: str | dict[str, Any] = options.agent
    kind, _, place = options.agent.partition(":")
    if kind == "python" and place.count(":"):
        file, _, name = place.rpartition(":")
        path = os.path.relpath(Path(file).parent, options.output)
        agent = {"adapter": "python", "endpoint": f"{Path(file).stem}:{name}", "path": path}
    elif "://" in options.agent:
        or_fail(agent_at(options.agent))
    elif not _PLACE.fullmatch(options.agent):
        hint = "Write a URL, module:name, or python:FILE:NAME."
        refuse(f"--agent {one_line(options.agent)} names no agent.", hint)
    return Target({"agent": agent}, is_agent=True, model=model)
