"""Bundles: what of a project goes to other machines, and what never does."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from kindlm.errors import Err, Ok, Result
from kindlm.fleet import bundle as bundles
from kindlm.fleet.bundle import pack, unpack
from kindlm.recording.loading import load_paths
from kindlm.recording.watched_files import watched_files

SUITE = """\
kindlm: 1
project: demo
suite: {name: shop}
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}}
models: [{id: m, provider: openai, model: gpt-4o-mini}]
prompts: {ask: {systemFile: prompts/system.md, user: Hello}}
tests:
  - {name: hello, prompt: ask, expect: {output: {contains: hi}}}
"""


def pack_project(root: Path, *paths: str) -> Result[bytes]:
    loaded = load_paths([root / path for path in paths], root)
    assert isinstance(loaded, Ok)
    return pack(sorted(watched_files((), loaded.value, root).stamps()), root)


def names_in(bundle: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(bundle)).namelist())


def test_has_what_a_suite_names_and_no_environment_file(tmp_path: Path) -> None:
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    (tmp_path / "kindlm.toml").write_text('project = "demo"\n')
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/system.md").write_text("Be kind.")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-secret-of-mine")
    (tmp_path / "notes.txt").write_text("not named by anything")

    made = pack_project(tmp_path, "kindlm.yaml")

    assert isinstance(made, Ok)
    assert names_in(made.value) == {"kindlm.toml", "kindlm.yaml", "prompts/system.md"}
    assert b"sk-secret" not in made.value


def test_has_the_modules_beside_a_test_in_python(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "helpers").mkdir(parents=True)
    (tests / "helpers/__init__.py").write_text("")
    (tests / "helpers/words.py").write_text("GREETING = 'hello'\n")
    (tests / "test_shop.py").write_text(
        "from helpers.words import GREETING\nfrom kindlm import scenario\n\n\n"
        "@scenario(agent=lambda message: GREETING)\nasync def test_greets(t): ...\n"
    )
    (tmp_path / "setup.py").write_text("")

    made = pack_project(tmp_path, "tests")

    assert isinstance(made, Ok)
    assert names_in(made.value) == {
        "tests/helpers/__init__.py",
        "tests/helpers/words.py",
        "tests/test_shop.py",
    }


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    root, there = tmp_path / "project", tmp_path / "there"
    root.mkdir(), there.mkdir()
    (root / "agent.py").write_bytes(b"\x00\xff")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    files = [root / "agent.py", root / "run.sh"]

    os.utime(root / "agent.py", (0, 0))

    made = pack(files, root)

    assert isinstance(made, Ok)
    unpack(made.value, there)
    assert (there / "agent.py").read_bytes() == b"\x00\xff"
    assert stat.S_IMODE((there / "agent.py").stat().st_mode) == 0o600
    assert stat.S_IMODE((there / "run.sh").stat().st_mode) == 0o700


@pytest.mark.parametrize("is_link", [False, True])
def test_refuses_a_file_outside_of_the_project(tmp_path: Path, is_link: bool) -> None:
    root = tmp_path / "project"
    root.mkdir()
    outside = tmp_path / "prompt.md"
    outside.write_text("hello")
    named = outside
    if is_link:
        named = root / "prompt.md"
        named.symlink_to(outside)

    made = pack([named], root)

    assert isinstance(made, Err)
    assert f"{str(named)!r} is outside of the project" in made.error.message


def test_leaves_out_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "kindlm.toml").write_text('project = "demo"\n')

    made = pack([tmp_path / "kindlm.toml", Path(bundles.__file__), Path(pytest.__file__)], tmp_path)

    assert isinstance(made, Ok)
    assert names_in(made.value) == {"kindlm.toml"}


def test_a_link_inside_the_project_becomes_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("hello")
    (tmp_path / "link.md").symlink_to("prompt.md")

    made = pack([tmp_path / "link.md"], tmp_path)

    assert isinstance(made, Ok)
    assert names_in(made.value) == {"link.md"}


def test_refuses_more_than_it_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.txt").write_text("x")
    (tmp_path / "rows.csv").write_text("x" * 100)
    monkeypatch.setattr(bundles, "MOST_BYTES", 100)

    made = pack(sorted(tmp_path.iterdir()), tmp_path)

    assert isinstance(made, Err)
    assert made.error.hint is not None
    assert "The largest is rows.csv" in made.error.hint
