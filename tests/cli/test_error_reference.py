"""The page of the errors has every code, and `kindlm explain` prints it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kindlm
from kindlm.checks.base import codes
from kindlm.cli.app import COMMANDS
from kindlm.cli.console import REFERENCE, render_problem
from kindlm.errors import ErrorCode, KindlmError

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs/reference/errors.md").read_text("utf-8")
SOURCES = {
    path: path.read_text("utf-8")
    for path in Path(kindlm.__file__).parent.rglob("*.py")
    if path.name != "errors.py"
}


class Entry(NamedTuple):
    number: int
    cause: str
    fix: str


def entries() -> dict[str, Entry]:
    found = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        name, _, rest = section.partition("\n")
        paragraphs = [text.strip() for text in rest.partition("\n## ")[0].strip().split("\n\n")]
        number, _, cause = paragraphs[0].partition(" ")
        found[name] = Entry(int(number.strip("*.")), cause, " ".join(paragraphs[1:]))
    return found


ENTRIES = entries()


def test_every_code_is_there_with_its_number() -> None:
    assert {name: entry.number for name, entry in ENTRIES.items()} == {
        code.name: code.value for code in ErrorCode
    }


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_a_code_is_produced_or_marked_as_not_produced_yet(code: ErrorCode) -> None:
    produced = any(re.search(rf"ErrorCode\.{code.name}\b", text) for text in SOURCES.values())
    entry = ENTRIES[code.name]
    assert produced is not entry.cause.startswith("Not produced yet")
    assert not produced or (entry.cause and entry.fix)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_an_error_names_the_section_of_its_code(code: ErrorCode) -> None:
    shown = render_problem(KindlmError(code, "x"), refer=True).plain
    page, _, anchor = shown.partition("See: ")[2].partition("#")
    headings = re.findall(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)
    assert page == REFERENCE
    assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


def test_the_page_is_on_the_site_that_the_package_names() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Documentation"] + "reference/errors/" == REFERENCE


@pytest.mark.parametrize("given", ["PROVIDER_RATE_LIMIT", "provider-rate-limit", "202"])
def test_a_code_is_explained_however_it_is_written(kindlm: Any, given: str) -> None:
    done = kindlm("explain", given)
    assert done.code == 0
    assert done.out.startswith("PROVIDER_RATE_LIMIT (202)\n\n")
    entry = ENTRIES["PROVIDER_RATE_LIMIT"]
    assert f"{entry.cause} {entry.fix}".split() == done.out.split()[2:-1]
    assert done.out.endswith(f"\n{REFERENCE}#provider_rate_limit\n")
    assert max(map(len, done.out.splitlines())) <= 100


def test_codes_of_checks_are_explained_and_all_codes_are_listed(kindlm: Any) -> None:
    for code in sorted(codes().keys() - ENTRIES.keys()):
        shown = " ".join(kindlm("explain", code).out.split())
        assert shown.startswith(f"{code}, a failed check {codes()[code]}")
    listed = kindlm("explain").out
    assert all(code in listed for code in (*codes(), *ENTRIES))


def test_a_terminal_of_80_columns_cuts_no_meaning_off(
    kindlm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = kindlm("explain").out
    assert "…" not in listed
    assert max(map(len, listed.splitlines())) <= 80


def test_a_narrow_terminal_lists_all_codes(kindlm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    listed = kindlm("explain")
    assert (listed.code, listed.err) == (0, "")
    assert all(code in listed.out for code in (*codes(), *ENTRIES))


def test_an_unknown_code_is_an_error(kindlm: Any) -> None:
    done = kindlm("explain", "PROVIDER_RATELIMIT")
    assert (done.code, done.out) == (1, "")
    assert "List all codes: kindlm explain" in done.err


def test_every_code_of_an_assertion_is_there() -> None:
    table = PAGE.partition("## Codes of assertions")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == list(codes())


def test_every_code_that_a_check_gives_is_declared_in_its_module() -> None:
    written = r'"((?:[A-Z]+_)+[A-Z]+)"'
    for path, text in SOURCES.items():
        if path.is_relative_to(Path(kindlm.__file__).parent / "checks"):
            assert {*re.findall(written, text)} <= codes().keys(), path
    declared = "".join(SOURCES.values())
    assert all(declared.count(f'"{code}"') > 1 for code in codes())


def test_one_reference_is_enough_for_many_errors_of_a_kind(kindlm: Any, here: Path) -> None:
    (here / "kindlm.yaml").write_text("kindlm: 1\nmodles: []\nprmpts: {}\n", "utf-8")
    errors = kindlm("validate").err
    assert errors.count("✗ ") > 1
    assert errors.count("See: ") == 1
    assert errors.rstrip().endswith(
        "See: https://kindlm.com/docs/reference/errors/#config_validation_error"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["test", "--repeat", "x"], "✗ '--repeat' should be a valid integer."),
        (["test", "-j", "99"], "✗ '--concurrency' / '-j' should be less than or equal to 32."),
        (["runs", "--format", "x"], "Invalid value for '--format': 'x' is not one of"),
        (["runs", "--limit"], "Option '--limit' requires an argument."),
    ],
)
def test_wrong_usage_is_said_in_the_words_of_a_command_line(
    kindlm: Any, given: list[str], said: str
) -> None:
    errors = kindlm(*given).err
    assert said in errors
    assert errors.endswith(f"For help: kindlm {given[0]} --help\n")


def test_help_shows_no_python_types(kindlm: Any) -> None:
    shown = "".join(kindlm(*command.split(), "--help").out for command in COMMANDS)
    assert re.findall(r"<(?:str|int|float|path|list|\w+ range)\b.*?>", shown) == []


def test_warnings_refer_to_nothing(kindlm: Any, here: Path) -> None:
    suite = """
kindlm: 1
project: shop
suite: { name: support }
providers: { fake: { type: scripted, replies: [ { text: hi } ] } }
models: [ { id: m, provider: fake, model: m } ]
prompts: { hello: { user: hi } }
tests: [ { name: greets, prompt: hello, expect: {} } ]
"""
    (here / "kindlm.yaml").write_text(suite, "utf-8")
    warned = kindlm("validate")
    assert warned.code == 0
    assert "! " in warned.err
    assert "See: " not in warned.err
