"""What a path holds: suites are found by their text, everything else is left alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kindlm.config import load_suite
from kindlm.errors import Err, ErrorCode, Ok
from kindlm.formats import discovery
from kindlm.formats.discovery import Discovery, Found, cases_in, discover

SUITE = "kindlm: 1\nproject: shop\n"
AGENT = "agent: http://127.0.0.1:1/chat\n"
IN_FLOW = '{agent: "http://127.0.0.1:1", tets: [{name: a, input: a, expect: {}}]}'


def write(path: Path, text: str = SUITE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def held(path: Path) -> Discovery:
    result = discover(path)
    assert isinstance(result, Ok)
    return result.value


def names(path: Path) -> list[str]:
    return [found.path.relative_to(path).as_posix() for found in held(path).found]


def test_folders_are_searched_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "sub/deep/c.YAML"):
        write(tmp_path / name)
    assert names(tmp_path) == ["a.yaml", "b.yml", "sub/deep/c.YAML"]


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n---\nkindlm: 1\n",
        "\ufeffkindlm: 1\n",
        '"kindlm": 1\n',
        "kindlm:\n",
        '{"project": "shop", "kindlm": 1}',
        "kindlm: 1\ntests: [unclosed\n",
        "kindlm: 1\r\nproject: x\r\n",
    ],
)
def test_a_suite_is_known_by_its_key_even_when_its_syntax_is_broken(
    tmp_path: Path, text: str
) -> None:
    write(tmp_path / "suite.yaml", text)
    assert names(tmp_path) == ["suite.yaml"]


@pytest.mark.parametrize(
    "text",
    ["", "name: ci\nkindlm-version: 1\n", "env:\n  kindlm: 1\n", "# kindlm: 1\n", "- kindlm\n"],
)
def test_other_yaml_is_passed_over_in_a_folder(tmp_path: Path, text: str) -> None:
    write(tmp_path / "other.yaml", text)
    assert held(tmp_path) == Discovery((), ())


@pytest.mark.parametrize(
    "text",
    [
        "KindLM: 1\nproject: shop\nsuite: {name: a}\ntests: []\n",
        " kindlm: 1\n---\nproviders:\n- openai:gpt-4o\nprompts: [hi]\n",
        "input: x\nexpected: {tools: [search]}\n",
        '"turns": []\n"expect": {}\n',
        "agent: http://127.0.0.1:8000/chat\ntests: [{name: a, input: x, expect: {}}]\n",
        "model: openai/gpt-4o\ntests:\n- {name: a, input: x, expect: {}}\n",
    ],
)
def test_what_looks_like_tests_but_is_not_is_reported(tmp_path: Path, text: str) -> None:
    other = write(tmp_path / "other.yaml", text)
    assert held(tmp_path) == Discovery((), (other,))


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", " " * 200_000 + "- a"),
        (".yaml", "-a" * 20_000),
        (".yaml", '{"' + '\\"' * 20_000),
        (".toml", " " * 20_000),
    ],
)
def test_the_time_to_recognise_a_text_grows_only_with_its_length(suffix: str, text: str) -> None:
    began = time.process_time()
    assert discovery.recognised(text, suffix) is None
    assert time.process_time() - began < 1


def test_a_case_without_thresholds_is_not_skipped(tmp_path: Path) -> None:
    text = "name: capital\ninput: {query: x}\nexpected: {tools: [search]}\n"
    write(tmp_path / "case.yaml", text)
    assert names(tmp_path) == ["case.yaml"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_suite_in_another_encoding_is_found(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "suite.yaml").write_bytes(SUITE.encode(encoding))
    assert names(tmp_path) == ["suite.yaml"]


def test_a_suite_that_a_program_wrote_as_json_is_one(tmp_path: Path) -> None:
    document = {"agent": "http://127.0.0.1:1", "tests": [{"name": "a", "input": "Hi"}]}
    write(tmp_path / "kindlm.yaml", json.dumps(document))
    assert names(tmp_path) == ["kindlm.yaml"]


def test_other_yaml_is_an_error_when_it_was_named(tmp_path: Path) -> None:
    result = discover(write(tmp_path / "other.yaml", "name: ci\n"))
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.CONFIG_VALIDATION_ERROR


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("", 1, "The file is empty", "Add `tests:` with a first test."),
        ("# nothing\n", 1, "The file is empty", "Add `tests:` with a first test."),
        (AGENT, 1, 'The key "tests" is missing', "Add `tests:`, such as `tests: [{name: "),
        (AGENT + "test: []\n", 2, 'Unknown key "test"', 'Did you mean "tests"?'),
        (AGENT + "tets: []\n", 2, 'Unknown key "tets"', 'Did you mean "tests"?'),
        (IN_FLOW, 1, 'Unknown key "tets"', 'Did you mean "tests"?'),
        (AGENT + "cases: []\n", 2, 'Unknown key "cases"', 'Did you mean "tests"? For example'),
        ("name: ci\n", 1, 'Unknown key "name"', "Did you mean `suite: {name: …}`?"),
    ],
)
def test_what_is_wrong_with_a_suite_without_tests_is_reported_at_its_line(
    tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    path = write(tmp_path / "kindlm.yaml", text)
    assert discover(path) == Ok(Discovery((Found(path, "kindlm"),)))
    error = load_suite(path).diagnostics[0].error
    assert (error.where and error.where.line, error.message) == (line, message)
    assert (error.hint or "").startswith(hint)


def test_a_misspelt_suite_is_found_in_a_folder_but_an_empty_one_is_not(tmp_path: Path) -> None:
    write(tmp_path / "kindlm.yaml", AGENT + "tets: []\n")
    write(tmp_path / "empty" / "kindlm.yaml", "")
    assert names(tmp_path) == ["kindlm.yaml"]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = discover(tmp_path / "nowhere")
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.CONFIG_NOT_FOUND


def test_what_is_no_regular_file_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "kindlm.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        result = discover(path)
        assert isinstance(result, Err)
        assert "not a regular file" in result.error.message
    assert load_suite(pipe).suite is None
    assert discover(tmp_path) == Ok(Discovery(()))


@pytest.mark.parametrize("folder", [".git", "a/node_modules", "__pycache__"])
def test_folders_of_tools_are_not_looked_into(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "suite.yaml")
    assert names(tmp_path) == []


def test_virtual_environments_of_any_name_are_not_looked_into(tmp_path: Path) -> None:
    write(tmp_path / "env" / "pyvenv.cfg", "home = /usr\n")
    write(tmp_path / "env" / "suite.yaml")
    assert names(tmp_path) == []


def test_links_in_a_circle_end_and_a_file_is_found_once(tmp_path: Path) -> None:
    suite = write(tmp_path / "a" / "suite.yaml")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "b.yaml").symlink_to(suite)
    (tmp_path / "broken.yaml").symlink_to(tmp_path / "nowhere")
    assert len(names(tmp_path)) == 1


def test_a_linked_folder_is_searched(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "suite.yaml")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "shared").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "tests") == ["shared/suite.yaml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    try:
        assert isinstance(discover(tmp_path), Err)
    finally:
        closed.chmod(0o700)


CASE = "name: a\ninput: {query: x}\nexpected: {}\nthresholds: {min_score: 1}\n"
IN_BRACES = "{name: a, input: {query: x}, thresholds: {min_score: 1}}"
LISTED = "# cases\n- name: a\n  input: {query: x}\n  thresholds: {min_score: 1}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", CASE),
        ("a.yml", CASE.replace("input: {query: x}", "turns:\n- query: x\n")),
        ("a.yaml", f"\ufeff---\n{CASE}---\n{CASE}"),
        ("a.yaml", LISTED),
        ("a.yaml", f"---\n{LISTED}"),
        ("a.yaml", LISTED.replace("\n", "\n  ").replace("# cases", "# cases\n")),
        ("a.yaml", LISTED.replace("- ", "-   ").replace("  i", "    i").replace("  t", "    t")),
        ("a.yaml", '{"name": "a", "input": {"query": "x"}, "thresholds": {"min_score": 1}}'),
        ("a.yaml", '[{"input": {"query": "x"}, "thresholds": {"min_score": 1}}]'),
        ("a.yaml", f"# cases\n---\n{IN_BRACES}\n"),
        ("a.yaml", f"# cases\n- {IN_BRACES}\n- {IN_BRACES}\n"),
        ("a.yaml", f"---\n  -   &first {IN_BRACES}\n"),
        ("a.yaml", LISTED.replace("- name", "-\n  name")),
        ("a.yaml", LISTED.replace("- name", "- # first\n  name")),
        ("a.yaml", f"--- {LISTED}"),
        ("a.yaml", LISTED.replace("- name", "- &a\n  name").replace("  ", "    ")),
        ("a.yaml", '{"name": "a \\\n b", ' + IN_BRACES[1:]),
        ("a.yaml", CASE.replace("{query: x}", "[unclosed")),
        ("a.toml", "name = 'a'\ninput.query = 'x'\nthresholds = {min_score = 1}\n"),
        ("a.toml", "[[turns]]\nquery = 'x'\n[ thresholds ]\nmin_score = 1\n"),
    ],
)
def test_cases_of_evalview_are_known_by_their_keys(tmp_path: Path, name: str, text: str) -> None:
    file = write(tmp_path / name, text)
    assert held(tmp_path) == Discovery((Found(file, "evalview"),))
    assert held(file) == Discovery((Found(file, "evalview"),))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", CASE.replace("input", "inputs")),
        ("a.yaml", "name: a\ninput: x\n"),
        ("a.yaml", "name: a\ninputs: {query: x}\n"),
        ("a.yaml", "name: a\nturns: [{query: x}]\n"),
        ("a.yaml", "name: a\nimput: x\nexpectd: {}\n"),
        ("a.yaml", CASE.replace("name", "nane").replace("input", "imput")),
        ("a.yaml", CASE.title()),
        ("a.yaml", '{"name": "a", "inputs": {"query": "x"}}'),
        ("a.toml", "Name = 'a'\n[Input]\nQuery = 'x'\n[Expected]\n[Thresholds]\n"),
        ("a.toml", "name = 'a'\n[inputs]\nquery = 'x'\n"),
    ],
)
def test_what_is_nearly_a_case_is_one_so_that_its_error_is_reported(
    tmp_path: Path, name: str, text: str
) -> None:
    file = write(tmp_path / name, text)
    assert held(tmp_path) == Discovery((Found(file, "evalview"),))


def test_a_file_with_a_name_and_a_syntax_error_is_a_case_where_other_cases_are(
    tmp_path: Path,
) -> None:
    for folder in ("cases", "others"):
        write(tmp_path / folder / "b.yaml", "name: [\n")
        write(tmp_path / folder / "c.yaml", "name: c\nage: 3\n")
        write(tmp_path / folder / "ci.yaml", "name: ci\njobs: [\n")
    write(tmp_path / "cases" / "a.yaml", CASE)
    assert names(tmp_path) == ["cases/a.yaml", "cases/b.yaml"]
    assert [path.name for path in cases_in(tmp_path / "cases")] == ["a.yaml", "b.yaml"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("action.yml", "name: a\ninputs: {query: {default: x}}\nruns: {using: composite}\n"),
        ("ci.yml", "name: a\non: push\njobs: {}\n"),
        ("compose.yml", "name: a\nservices: {web: {image: x}}\n"),
        ("person.yaml", "name: a\nage: 3\ninputs: 2\n"),
        ("pyproject.toml", "[project]\nname = 'a'\n[tool.x]\nturns = 1\n[input]\n"),
    ],
)
def test_what_has_a_name_is_no_case_for_that(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    assert held(tmp_path).found == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "meta:\n  input: x\n  thresholds: 1\n"),
        ("a.toml", "[tool.x]\ninput = 1\n"),
        ("a.toml", "[models]\n[tests]\n"),
        (".evalview.yaml", CASE),
        (".evalview.toml", "input.query = 'x'\nthresholds.min_score = 1\n"),
    ],
)
def test_what_is_no_case_of_evalview_is_ignored(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    assert held(tmp_path).found == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: x\nturns:\n- says: hi\n"),
        ("a.yaml", "turns:\n- says: hi\nthresholds: {min_score: 1}\n"),
        ("a.yaml", '{"name": "x", "turns": [{"says": "hi"}]}'),
        ("test_a.py", "from kindlm import scenario\n"),
        ("a_test.py", "import os\nimport kindlm\n"),
        ("test_a.py", "def late():\n    from kindlm import scenario\n"),
        ("test_a.py", "import pytest\nk = pytest.importorskip('kindlm', reason='x')\n"),
        ("test_a.py", "import importlib as i\nk = i.import_module('kindlm.scenario')\n"),
    ],
)
def test_scenarios_are_known_by_their_turns_or_their_import(
    tmp_path: Path, name: str, text: str
) -> None:
    file = write(tmp_path / name, text)
    assert held(tmp_path) == Discovery((Found(file, "scenario"),))
    assert held(file) == Discovery((Found(file, "scenario"),))


@pytest.mark.parametrize(
    "text",
    [
        "name: x\nturn:\n- says: hi\nassertions: [{contains: hi}]\n",
        "name: x\nturns:\n- say: hi\nassertions: [{contains: hi}]\n",
        "turn:\n- says: hi\n",
        "name: x\nturns: []\n",
        "- name: x\n  turns:\n  - user: hi\n",
        "name: x\npersona: {role: user}\nasertions: [{contains: hi}]\n",
        '{"name": "x", "turn": [{"says": "hi"}]}',
    ],
)
def test_what_is_nearly_a_scenario_is_one_so_that_its_error_is_reported(
    tmp_path: Path, text: str
) -> None:
    file = write(tmp_path / "a.yaml", text)
    assert held(tmp_path) == Discovery((Found(file, "scenario"),))
    assert held(file) == Discovery((Found(file, "scenario"),))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: x\npersona: {role: user}\n"),
        ("a.yaml", "name: x\nperson: {name: y}\ndays: 3\n"),
        ("ci.yaml", "name: ci\njobs: {turns: 1}\nassertions: []\npersona: x\n"),
        ("other.py", "from kindlm import scenario\n"),
        ("test_a.py", "import kindlm_plus\n"),
        ("test_a.py", "# import kindlm\n"),
        ("test_a.py", "print('kindlm is not here', 'kindlm')\n"),
        ("a.yaml", "says: hi\n"),
        ("a.toml", "[[turns]]\nsays = 'hi'\n"),
    ],
)
def test_what_is_no_scenario_is_ignored(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    assert held(tmp_path).found == ()


def test_what_several_test_files_import_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    imports = discovery._imports

    def counted(file: Path, folders: tuple[Path, ...]) -> Any:
        read.append(file.name)
        return imports(file, folders)

    monkeypatch.setattr(discovery, "_imports", counted)
    write(tmp_path / "helper.py", "import deeper\n")
    write(tmp_path / "deeper.py", "import helper\n")
    for name in "abc":
        write(tmp_path / f"test_{name}.py", "import helper\n")
    assert names(tmp_path) == []
    assert sorted(read) == ["deeper.py", "helper.py", "test_a.py", "test_b.py", "test_c.py"]


def test_the_configuration_of_evalview_is_no_case(tmp_path: Path) -> None:
    file = write(tmp_path / ".evalview" / "config.yaml", CASE)
    assert held(file.parent).found == ()
    assert isinstance(discover(file), Err)


def test_a_case_that_was_named_is_one_although_it_has_neither_thresholds_nor_query(
    tmp_path: Path,
) -> None:
    text = "title: a\ninput: {question: x}\nexpected: {}\n"
    file = write(tmp_path / "a.yaml", text)
    assert held(tmp_path) == Discovery((), (file,))
    assert held(file) == Discovery((Found(file, "evalview"),))


def test_a_suite_is_a_suite_whatever_else_it_has(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", SUITE + CASE)
    assert held(file) == Discovery((Found(file, "kindlm"),))
