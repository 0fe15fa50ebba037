"""What a path holds: suites are found by their text, everything else is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kindlm.config import load_suite
from kindlm.errors import Err, ErrorCode, Ok
from kindlm.formats.discovery import Discovery, discover

SUITE = "kindlm: 1\nproject: shop\n"


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
        "name: capital\ninput: {query: x}\nexpected: {tools: [search]}\n",
        '"turns": []\n"expect": {}\n',
    ],
)
def test_what_looks_like_tests_and_is_none_is_told(tmp_path: Path, text: str) -> None:
    other = write(tmp_path / "other.yaml", text)
    assert held(tmp_path) == Discovery((), (other,))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_suite_in_another_encoding_is_found(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "suite.yaml").write_bytes(SUITE.encode(encoding))
    assert names(tmp_path) == ["suite.yaml"]


def test_other_yaml_is_an_error_when_it_was_named(tmp_path: Path) -> None:
    result = discover(write(tmp_path / "other.yaml", "name: ci\n"))
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.CONFIG_VALIDATION_ERROR


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
        assert "no regular file" in result.error.message
    assert load_suite(pipe).suite is None
    assert discover(tmp_path) == Ok(Discovery(()))


@pytest.mark.parametrize(
    "folder", [".git", ".venv", ".kindlm", "node_modules", "a/node_modules", "__pycache__"]
)
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
