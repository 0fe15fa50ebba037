"""What `kindlm gen` does without a model: it writes suites from recordings, and from attacks."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kindlm.cli.commands.gen import GenOptions
from kindlm.cli.commands.init import agent_at
from kindlm.cli.console import fail, note, or_fail, refuse
from kindlm.cli.history import no_execution, open_view, project_here
from kindlm.dataclass import replace
from kindlm.errors import not_there
from kindlm.generate.corpora import attack_suites, read_attacks
from kindlm.generate.forms import slug
from kindlm.generate.recorded_suite import Target, recorded_suites
from kindlm.generate.recordings import MAX_BYTES, Recording, read_recordings
from kindlm.generate.recordings.own_run import read_execution, recorded_target
from kindlm.generate.stand_ins import StandIns
from kindlm.generate.suite_text import write_file
from kindlm.patterns import PatternError
from kindlm.recording.project import run_environment
from kindlm.recording.secrets import suite_secrets
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import Redactor

_PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def write_recorded(options: GenOptions) -> int:
    """Write suites of recordings and return the exit code."""
    what = "--from-run" if options.from_trace is None else "--from-trace"
    _refuse_beside(what, options, {"--from-run": options.from_trace and options.from_run})
    target = _target_of(options)
    project = project_here(options.database)
    if options.from_run is not None:
        recordings, recorded, origin = _of_run(options, *options.from_run, project.root)
        target = replace(recorded, model=target.model) if target.written is None else target
    else:
        assert options.from_trace is not None
        recordings, origin = _of_file(options.from_trace), options.from_trace.name
    redact = Redactor(suite_secrets(run_environment([project.root], os.environ), []))
    stand_ins = StandIns(redact, keep_personal_data=options.keep_personal_data)
    try:
        recordings = [
            replace(stand_ins.recording(each), failed=options.failed or each.failed)
            for each in recordings
        ]
    except PatternError as error:
        refuse(f"Personal data cannot be found: {error}.", "Use --keep-personal-data.")
    stem = recordings[0].name if options.from_trace is None else options.from_trace.stem
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
    _tell_command(options, files, len(made.names) - len(made.unfinished))
    return 0


def write_attacks(options: GenOptions, source: str) -> int:
    """Write a suite of attacks and return the exit code."""
    others = {"--from-trace": options.from_trace, "--from-run": options.from_run}
    _refuse_beside("--from", options, others)
    target = _target_of(options)
    found = or_fail(read_attacks(source, options.count + 1))
    has_more = len(found.attacks) > options.count
    attacks = found.attacks[: options.count]
    for why, number in found.left_out.items():
        note(f"Left out: {count(number, 'attack')} {why}.")
    if not attacks:
        refuse(f"{source} has no attack that a test can make.", "Choose another name.")
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
    _tell_command(options, files, len(attacks))
    return 0


def _refuse_beside(what: str, options: GenOptions, others: Mapping[str, object]) -> None:
    """Refuse other sources of tests beside one, and what only the planning of tests takes."""
    of_a_plan = {
        "--description": options.description,
        "--system-prompt": options.system_prompt,
        "--categories": options.categories,
        "--seed": options.seed,
    }
    given = [name for name, value in {**others, **of_a_plan}.items() if value is not None]
    if given:
        refuse(f"{what} and {given[0]} cannot be combined.", "Remove one of them.")


def _write_suites(options: GenOptions, texts: Iterable[str], file: Path) -> list[Path]:
    """Write suites, print where they stand, and return that; the second one has the number 2."""
    files = list[Path]()
    try:
        for number, text in enumerate(texts, 1):
            name = file if number == 1 else file.with_stem(f"{file.stem}_{number}")
            files.append(write_file(name, text, force=options.force))
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}.", "Use --output DIR.")
    for written in files:
        sys.stdout.write(f"{one_line(str(written))}\n")
    return files


def _tell_command(options: GenOptions, files: Iterable[Path], tests: int) -> None:
    """Print the command that runs suites, of which some tests are not skipped, or none."""
    words = " ".join(shlex.quote(one_line(str(each))) for each in files)
    command = options.command(f"kindlm test {words}")
    run = f"Run {count(tests, 'test')}" if tests else "Then run"
    sys.stdout.write(f"\n{run}: {command}\n")


def _of_run(
    options: GenOptions, run: str, number: str, root: Path
) -> tuple[list[Recording], Target, str]:
    """Return what was recorded in an execution, what it ran on, and where it is from."""
    with open_view(options.database, run) as view:
        execution = view.execution(number)
        if execution is None:
            fail([no_execution(number, view)])
        recording = read_execution(view.db, execution)
        target = recorded_target(view.db, execution, root, Path(options.output))
        return [recording], target, f"run {view.id}, execution {execution.number}"


def _of_file(file: Path) -> list[Recording]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        why = f"{file} cannot be read: {error.strerror}"
        fail([not_there(why, "Check the path")])
    found = or_fail(read_recordings(data, file))
    if not found:
        refuse(f"{file} holds no trace.", "Export one that has ended.")
    return found


def _target_of(options: GenOptions) -> Target:
    """Return what the options say of the target; end the command if that is nothing of use."""
    if (options.provider is None) != (options.model is None):
        refuse("--provider and --model go together.", "Pass both, or neither.")
    model = None if options.model is None else f"{options.provider}/{options.model}"
    if options.agent is None:
        return Target(None if model is None else {"model": model}, model=model)
    agent = _agent(options.agent, Path(options.output))
    return Target({"agent": agent}, is_agent=True, model=model)


def _agent(given: str, folder: Path) -> str | dict[str, Any]:
    """Return the agent as it stands in a suite in a folder."""
    kind, _, place = given.partition(":")
    if kind == "python" and place.count(":"):
        file, _, name = place.rpartition(":")
        path = os.path.relpath(Path(file).parent, folder)
        return {"adapter": "python", "endpoint": f"{Path(file).stem}:{name}", "path": path}
    if "://" in given:
        or_fail(agent_at(given))
    elif not _PLACE.fullmatch(given):
        hint = "Write a URL, module:name, or python:FILE:NAME."
        refuse(f"--agent {one_line(given)} names no agent.", hint)
    return given
