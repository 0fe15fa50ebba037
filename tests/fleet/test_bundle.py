"""Bundles: what of a project goes to other machines, and what never does."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from examples import examples
from kindlm.errors import Err, Ok
from kindlm.fleet import bundle as bundles
from kindlm.fleet.bundle import Bundle, BundleError, make_bundle, pack, unpack
from kindlm.recording.loading import Loaded, load_paths

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


def packed(files: dict[str, bytes], modes: dict[str, int] | None = None) -> Bundle:
    """Return a bundle with any names and modes, as somebody might forge it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, content in files.items():
            entry = zipfile.ZipInfo("x")
            entry.filename = name
            entry.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o600) << 16
            file.writestr(entry, content)
    return Bundle(data.getvalue(), hashlib.sha256(data.getvalue()).hexdigest())


def written_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def loaded_from(root: Path, *paths: str) -> Loaded:
    loaded = load_paths([root / path for path in paths], root)
    assert isinstance(loaded, Ok)
    return loaded.value


def names_in(bundle: Bundle) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(bundle.data)).namelist())


def test_has_what_a_suite_names_and_no_environment_file(tmp_path: Path) -> None:
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    (tmp_path / "kindlm.toml").write_text('project = "demo"\n')
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/system.md").write_text("Be kind.")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-secret-of-mine")
    (tmp_path / "notes.txt").write_text("not named by anything")

    made = make_bundle(loaded_from(tmp_path, "kindlm.yaml"), tmp_path)

    assert isinstance(made, Ok)
    assert names_in(made.value) == {"kindlm.toml", "kindlm.yaml", "prompts/system.md"}
    assert b"sk-secret" not in made.value.data


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

    made = make_bundle(loaded_from(tmp_path, "tests"), tmp_path)

    assert isinstance(made, Ok)
    assert names_in(made.value) == {
        "tests/helpers/__init__.py",
        "tests/helpers/words.py",
        "tests/test_shop.py",
    }


def test_equal_files_make_equal_bundles_and_come_back_as_they_were(tmp_path: Path) -> None:
    root, there = tmp_path / "project", tmp_path / "there"
    root.mkdir(), there.mkdir()
    (root / "agent.py").write_bytes(b"\x00\xff")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    files = [root / "agent.py", root / "run.sh"]

    first = pack(files, root)
    os.utime(root / "agent.py", (0, 0))
    second = pack(reversed(files), root)

    assert isinstance(first, Ok)
    assert first == second
    unpack(first.value.data, first.value.hash, there)
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


PART = st.sampled_from(["..", ".", "", "a", "b", "/", "\\", "\0", "a\n", "C:", "é", "~"])
NAMES = st.one_of(
    st.lists(PART, max_size=4).map("/".join), st.text(st.characters(codec="utf-8"), max_size=8)
)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, min_size=1, max_size=3))
@example(names=["../escaped"])
@example(names=["/tmp/escaped"])
@example(names=["a", "a"])
@example(names=["a", "a/b"])
def test_no_path_leads_out_of_the_folder(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("bundle")
    folder = top / "in" / "here"
    folder.mkdir(parents=True)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for number, name in enumerate(names):
            entry = zipfile.ZipInfo(f"{number}")
            # Written as it is: zipfile would tidy it.
            entry.filename = name
            entry.external_attr = (stat.S_IFREG | 0o600) << 16
            try:
                file.writestr(entry, b"content")
            except (ValueError, UserWarning):
                return
    forged = Bundle(data.getvalue(), hashlib.sha256(data.getvalue()).hexdigest())

    try:
        unpack(forged.data, forged.hash, folder)
    except BundleError:
        pass
    else:
        assert written_below(folder) == {*names}
    assert all(each.startswith("in/here/") for each in written_below(top))


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        unpack(data, hashlib.sha256(data).hexdigest(), Path("nowhere"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFDIR, 0])
def test_refuses_all_but_regular_files(tmp_path: Path, kind: int) -> None:
    forged = packed({"fine": b"", "entry": b"/etc/passwd"}, {"entry": kind | 0o777})

    with pytest.raises(BundleError, match="no file: 'entry'"):
        unpack(forged.data, forged.hash, tmp_path)

    assert written_below(tmp_path) == set()


def test_refuses_another_bundle_than_was_sent(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="hash differs"):
        unpack(packed({"a": b"x"}).data, packed({"a": b"y"}).hash, tmp_path)


def test_refuses_a_bundle_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = packed({"a": b"x" * 101})
    monkeypatch.setattr(bundles, "MOST_BYTES", 100)

    with pytest.raises(BundleError, match="larger"):
        unpack(forged.data, forged.hash, tmp_path)
