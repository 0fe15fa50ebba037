"""The wheel brings the plugin: pytest finds it by itself where kindlm is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest
from pytest_project import pytest_environment

ROOT = Path(__file__).parents[2]


def call(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def build_wheel(folder: Path) -> Path:
    """Build the wheel with what is on this machine; skip the test where it lacks the backend."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    built = call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("kindlm-*.whl")
    return wheel


def test_an_installed_wheel_has_the_plugin(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "wheels")
    venv = tmp_path / "venv"
    assert call(sys.executable, "-m", "venv", "--without-pip", venv).returncode == 0
    python = venv / "bin" / "python"
    [packages] = venv.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        # Nothing of it has to go elsewhere.
        assert not [name for name in archive.namelist() if ".data/" in name]
        archive.extractall(packages)
    [entry_points] = packages.glob("kindlm-*.dist-info/entry_points.txt")
    assert "[pytest11]\nkindlm = kindlm.pytest_plugin.plugin" in entry_points.read_text()
    assert "[console_scripts]\nkindlm = kindlm.__main__:main\n" in entry_points.read_text()
    page = entry_points.with_name("METADATA").read_text()  # of the package, far from the checkout
    assert "](https://github.com/kindlm/kindlm/blob/main/docs/" in page
    assert not re.findall(r"\]\((?!https?://|#).*?\)", page)
    # What kindlm needs is taken from here; kindlm itself from the wheel, which comes first.
    packages.joinpath("needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    project = tmp_path / "project"
    project.mkdir()
    project.joinpath("test_it.py").write_text(
        "import kindlm\n\n"
        "@kindlm.scenario('x')\n"
        "async def test_it(t): ...\n\n"
        f"def test_where(): assert kindlm.__file__.startswith({str(packages)!r})\n"
    )
    # Other plugins of this environment take longer to load than all the rest.
    others = ("anyio", "hypothesispytest", "inline_snapshot", "langsmith_plugin")
    without = [option for name in others for option in ("-p", f"no:{name}")]
    environ = pytest_environment()
    del environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
    done = subprocess.run(
        # The one session of a test whose worker is started, not forked.
        [str(python), "-m", "pytest", "-rs", "-n", "1", "-p", "no:cacheprovider", *without],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "a scenario of kindlm: run pytest --kindlm" in done.stdout
    # The page of the errors comes with the wheel.
    explained = call(python, "-I", "-m", "kindlm", "explain", "202")
    assert explained.stdout.startswith("PROVIDER_RATE_LIMIT (202)"), explained.stderr
