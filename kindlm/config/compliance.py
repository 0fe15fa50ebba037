"""The template of the compliance report: its file, and whether it can be used."""

from __future__ import annotations

from kindlm.config.diagnostics import Reporter
from kindlm.config.file_references import report_file
from kindlm.config.files import ReferencedFiles
from kindlm.config.raw import Raw, section
from kindlm.config.schema import ComplianceConfig
from kindlm.errors import Err, Ok

_PATH = ("compliance", "template")


def check_template(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report a template that is not there, that nothing uses, or that is no template."""
    compliance = section(raw, "compliance")
    file = compliance.get("template")
    if not isinstance(file, str) or not file:
        return
    if compliance.get("framework") != "custom":
        reporter.warning(
            _PATH, "A template is used by the framework custom alone", reason="unused_template"
        )
        return
    text = files.text(file)
    report_file(_PATH, file, text, reporter)
    if isinstance(text, Err):
        return
    # Slow to load, and few suites have one.
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(autoescape=True).parse(text.value)
    except TemplateSyntaxError as error:
        problem = f"{file}, line {error.lineno}: {error.message}"
    except RecursionError:
        problem = f"{file}: it nests too deeply"
    else:
        return
    reporter.error(
        _PATH, problem, "What a template may hold: docs/compliance.md", reason="template"
    )


def template_of(config: ComplianceConfig, files: ReferencedFiles) -> str | None:
    """Return the text of the template, None if there is none; it must have been checked."""
    if config.framework != "custom" or config.template is None:
        return None
    text = files.text(config.template)
    assert isinstance(text, Ok)
    return text.value
