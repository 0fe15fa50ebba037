"""What `kindlm gen` does with its options: ask, write, and report what was written."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from kindlm.cli.commands.gen import GenOptions
from kindlm.cli.commands.init import agent_at, secret_in_url
from kindlm.cli.console import fail, note, or_fail, refuse, show, warn
from kindlm.cli.history import open_recorded, project_here
from kindlm.cli.run_recording import record_run
from kindlm.config.compile import compile_agent
from kindlm.config.interpolation import insert
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError, SourceLocation
from kindlm.events.run import RunOptions
from kindlm.generate.generation_script import GenerationScript, generation_suite, not_written
from kindlm.generate.suite_text import check_folder
from kindlm.generate.test_plan import Order, parse_categories, spoken
from kindlm.history.run_view import RunView
from kindlm.plan import Selection
from kindlm.providers.provider_registry import check_settings
from kindlm.recording.history_file import new_run_id
from kindlm.recording.project import Project, project_name, run_environment
from kindlm.recording.request import RunRequest
from kindlm.recording.secrets import suite_secrets
from kindlm.reports.figures import money
from kindlm.reports.untrusted import one_line
from kindlm.scenarios.configuration import (
    LlmTable,
    LoadedConfiguration,
    load_configuration,
    provider_fault,
)
from kindlm.scenarios.scenario_suite import compiled_agent
from kindlm.suite import AgentTarget
from kindlm.wording import count
from kindlm_store import Redactor

_LONGEST_PROMPT = 60_000
_DEFAULT_FORM = (
    'The agent at --agent is asked in the default form, {"message": "…"}. If it takes another one, '
    "or headers, name it in kindlm.toml, [agent], and leave out --agent."
)


def write_tests(options: GenOptions) -> int:
    """Write tests and return the exit code. Faults of the user end the command through `fail`."""
    project = project_here(options.database)
    environ = run_environment([project.root], os.environ)
    loaded = load_configuration(project.root, environ)
    if loaded.config is None:
        fail([found.error for found in loaded.diagnostics])
    order = _order(options, project, loaded, environ)
    llm = _llm(options, loaded)
    suite = generation_suite(order, llm, project_name(project.root))
    redact = Redactor(suite_secrets(environ, [suite]))
    if order.written_agent is not None and redact(order.written_agent) != order.written_agent:
        fail([secret_in_url()])
    for settings in suite.providers.values():
        or_fail(check_settings(settings, environ))
    try:
        check_folder(order.folder)
    except OSError as error:
        fail([not_written(error)])
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
    by_url = order.written_agent is not None
    code = _told(request, run, script, options, by_url=by_url)
    if code:
        return code
    # How the files are run, and what they need for that.
    if order.agent is None:
        note("They need an agent: name it in kindlm.toml, [agent].")
    if loaded.config.llm is None:
        note(
            f"They need a judge: write [llm] into kindlm.toml, with provider = "
            f'"{llm.provider}" and model = "{llm.model}".'
        )
    command = options.command(f"kindlm test {shlex.quote(one_line(str(order.folder)))}")
    sys.stdout.write(f"\nRun them: {command}\n")
    return 0


def _order(
    options: GenOptions, project: Project, loaded: LoadedConfiguration, environ: Mapping[str, str]
) -> Order:
    categories = or_fail(parse_categories(options.categories))
    agent, written_agent = _agent(options, project, loaded, environ)
    prompt = None
    if (file := options.system_prompt) is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            refuse(
                f"The system prompt cannot be read: {reason}.",
                "Name a text file: --system-prompt FILE",
                code=ErrorCode.CONFIG_FILE_REF_ERROR,
                where=SourceLocation(str(file)),
            )
        if len(text) > _LONGEST_PROMPT:
            warn(f"Only the first {_LONGEST_PROMPT:,} characters of {file} are read.", None)
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
        written_agent=written_agent,
        seed=options.seed,
        force=options.force,
    )


def _agent(
    options: GenOptions, project: Project, loaded: LoadedConfiguration, environ: Mapping[str, str]
) -> tuple[AgentTarget | None, str | None]:
    """Return the agent to ask, and its URL if files have to name it.

    An agent of the configuration is known by its URL, too, and has its options then.
    """
    configured = compiled_agent(loaded, project.root)
    url = options.agent
    if url is None:
        return configured, None
    if configured is not None:
        known = insert(configured.endpoint, lambda name: environ.get(name.removeprefix("env."), ""))
        if known == url:
            return configured, None
    if "://" not in url:
        hint = (
            "Write a URL. Name an object of Python in kindlm.toml, [agent], with"
            ' type = "python" and url = "module:name", and leave out --agent.'
        )
        refuse(f"--agent {one_line(url)} is no URL.", hint)
    return compile_agent(or_fail(agent_at(url)), project.root), url


def _llm(options: GenOptions, loaded: LoadedConfiguration) -> LlmTable:
    """Return the model that plans: that of the configuration, as far as no option says else."""
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


def _told(
    request: RunRequest, run: str, script: GenerationScript, options: GenOptions, *, by_url: bool
) -> int:
    """Report what was written, and return the exit code.

    `by_url` tells that nothing but its URL is known of how the agent is asked.
    """
    generated = script.generated
    with open_recorded(request.database, run) as view:
        if view is None:
            return 1
        if generated is None:
            # What kept files from being written, as it is recorded.
            show(
                KindlmError(ErrorCode[execution.error_code], execution.error or "", execution.hint)
                for test in view.tests()
                for execution in view.executions(test)
                if execution.error_code is not None
            )
            if script.is_unheard and by_url:
                note(_DEFAULT_FORM)
            command = options.command(f"kindlm show {run} 1 --verbose")
            note(f"What was asked and answered: {command}")
            return 1
        folder = options.seen_from or Path()
        for path, scenario in generated.files.items():
            title = one_line(scenario.title)
            sys.stdout.write(f"{_shown(folder / path)}  {scenario.category}: {title}\n")
        sys.stdout.write(f"{_shown(folder / generated.profile)}  what the agent was taken for\n")
        for line in generated.left_out:
            note(f"Left out: {line}")
        missing = options.count - len(generated.files)
        if missing > 0:
            note(f"The plan held {count(missing, 'test')} fewer than were asked for.")
        note(f"Recorded as run {run}{_cost(view)}.")
    return 0


def _cost(view: RunView) -> str:
    paid = view.summary.paid
    if paid.total_usd is None:
        return "; what it cost is not known"
    return f": it cost {money(paid.total_usd)}{' or more' if paid.unknown else ''}"


def _shown(path: Path) -> str:
    """Return a path as a user would type it, with nothing in it that is not seen."""
    return one_line(str(path))
