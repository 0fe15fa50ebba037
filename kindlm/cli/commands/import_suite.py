"""`kindlm import-suite`: write the tests of another program as a suite of kindlm."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.cli.console import note, or_fail, refuse
from kindlm.cli.ending import loading
from kindlm.cli.options import argument, flag, option
from kindlm.errors import Err, SourceLocation
from kindlm.wording import count, first_of

if TYPE_CHECKING:
    from kindlm.generate.imported_tests import ImportedSuite
    from kindlm_store import Redactor

_MAX_PLACES = 5


def import_suite_command(
    file: Path = argument("FILE", "promptfooconfig.yaml, or an eval as YAML or JSON."),
    source: str | None = option(
        "--from FORMAT", "promptfoo or openai-evals. Default: recognised by the file."
    ),
    output: Path | None = option(
        "--output -o FILE", "Suite to write. Default: kindlm.yaml beside FILE."
    ),
    force: bool = flag("--force", "Overwrite an existing file."),
) -> None:
    """Convert a suite of promptfoo or OpenAI Evals to YAML.

    Nothing is run and nothing is fetched. What has no equivalent is listed with its line.
    """
    with loading():
        from kindlm.config import read_bytes
        from kindlm.generate.suite_text import suite_text, write_file
        from kindlm.generate.suites import FORMATS, Files, LeftOutError, format_named, read_part
        from kindlm.recording.secrets import redactor

    where = SourceLocation(str(file))
    document = or_fail(read_part(file.name, or_fail(read_bytes(file))))
    forms = [format_named(name) for name in FORMATS if source in (None, name)]
    form = next((each for each in forms if each.reads(document)), None)
    if form is None:
        formats = " or ".join(FORMATS)
        message = f"{file} is not a suite in the format {source or formats}."
        hint = f"Name another format: --from {formats}. Suites of KindLM and cases of EvalView need"
        refuse(message, f"{hint} no import: kindlm test {shlex.quote(str(file))}", where=where)
    files = Files(file.parent)
    try:
        imported = form.read(document, files)
    except LeftOutError as error:
        refuse(f"No suite can be made of {file}: it has {error.what}.", error.instead, where=where)
    path = output or file.with_name("kindlm.yaml")
    is_read = (path.samefile(each) for each in (file, *files.asked) if each.exists())
    if force and path.exists() and any(is_read):
        message = f"{path} belongs to the suite that is imported; nothing was written."
        refuse(message, "Name another file: --output", where=SourceLocation(str(path)))
    text = suite_text(_redacted(imported.document, redactor()), path)
    if isinstance(text, Err):
        found = text.error
        message = f"No suite can be made of {file}: {found.message[0].lower()}{found.message[1:]}"
        refuse(message, found.hint or "Change the file, then import it again", where=where)
    _report(imported, write_file(path, text.value, force=force), file.parent)


def _redacted(value: Any, redact: Redactor) -> Any:
    """Return a part of a suite without secrets, also without those in comments."""
    from kindlm.generate.suite_text import Comment

    if isinstance(value, Mapping):
        return {_redacted(key, redact): _redacted(item, redact) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, Comment):
        return Comment(redact(value.text))
    return redact(value) if isinstance(value, str) else value


def _report(imported: ImportedSuite, written: Path, folder: Path) -> None:
    """Note how many tests were imported, and the places of what was left out or changed."""
    kept = ""
    if imported.skipped:
        kept = f"; {imported.skipped:,} kept with `skip: true`, until you add checks"
    total = count(imported.tests, "test")
    note(f"{imported.imported:,} of {total} imported into {written}{kept}")
    found = {"Left out:": imported.left_out, "Different in kindlm:": imported.different}
    for title, notes in found.items():
        if notes:
            note(f"\n{title}")
        for what, places in notes.items():
            some = first_of((str(folder / place) for place in places), _MAX_PLACES)
            note(f"  {some}: {what.rstrip('.')}.")
    note(f"\nNext: kindlm test {shlex.quote(str(written))}")
