"""The example package with a check, a provider, an agent adapter and a report, as a user has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import jsonschema
import pytest
import yaml
from inside import forget_packages
from workspace import Workspace

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
Run = Callable[..., subprocess.CompletedProcess[str]]


def call(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel of the example installed beside kindlm."""
    folder = tmp_path_factory.mktemp("plugin")
    # Building leaves files behind in the folder of the package.
    source = shutil.copytree(EXAMPLE, folder / "source")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    built = call(*build, cwd=source)
    assert built.returncode == 0, built.stderr
    venv = folder / "venv"
    assert call(sys.executable, "-m", "venv", "--without-pip", venv).returncode == 0
    [wheel] = folder.glob("*.whl")
    [site] = venv.glob("lib/python*/site-packages")
    # Files that have to go elsewhere, such as commands, are in folders of their own: it has none.
    with ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if ".data/" in name]
        archive.extractall(site)
    # kindlm and what it needs are taken from here.
    site.joinpath("kindlm.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    return venv


@pytest.fixture
def run(packages: Path, workspace: Workspace) -> Iterator[Run]:
    """kindlm in the process of the tests, where the package is installed, too."""
    [site] = packages.glob("lib/python*/site-packages")
    shutil.copy(EXAMPLE / "kindlm.yaml", workspace.root)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(site)
            forget_packages()
            try:
                return workspace.run(*words)
            finally:
                forget_packages()

    yield run
    for name in [name for name in sys.modules if name.startswith("example_plugin")]:
        del sys.modules[name]


def test_all_four_kinds_work_from_an_installed_wheel(packages: Path, tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return call(packages / "bin" / "python", "-m", "kindlm", *words, cwd=tmp_path)

    shutil.copy(EXAMPLE / "kindlm.yaml", tmp_path)
    done = run("test", "--reporter", "tally", "--reporter", "json=run.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1:] == ["passed   repeats-politely", "passed   looks-orders-up"]
    report = json.loads((tmp_path / "run.json").read_text())
    kinds = [
        (assertion["kind"], assertion["label"])
        for test in report["tests"]
        for execution in test["executions"]
        for assertion in execution["assertions"]
    ]
    assert kinds == [
        ("polite", "polite"),
        ("tool_called", "look_up"),
        ("tool_not_called", "issue_refund"),
        ("polite", "polite"),
        ("polite", "polite #2"),
        ("concerns", "concerns"),
        ("contains", "turn 2: lost"),
    ]
    again = run("report", "latest", "--format", "tally")
    assert (again.returncode, again.stdout) == (0, done.stdout)


@pytest.mark.parametrize("removed", ["", ", role: judge", "defaults: { judgeModel: judge }"])
def test_a_judge_that_only_a_check_of_a_package_asks_is_in_use(
    run: Run, workspace: Workspace, removed: str
) -> None:
    suite = workspace.root / "kindlm.yaml"
    suite.write_text(suite.read_text().replace(removed, ""))
    done = run("validate")
    assert "no problems" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        ('{"yes": false}', "failed", "OTHER_TOPIC: It is not about orders"),
        ("I obey.", "errored", 'The check "concerns" of the package kindlm-example-plugin crashed'),
    ],
)
def test_a_check_of_a_package_asks_a_judge(
    run: Run, workspace: Workspace, answer: str, status: str, message: str
) -> None:
    suite = workspace.root / "kindlm.yaml"
    suite.write_text(suite.read_text().replace('{"yes": true}', answer))
    done = run("test", "-t", "looks-orders-up", "--reporter", "json")
    (test,) = json.loads(done.stdout)["tests"]
    (execution,) = test["executions"]
    (check,) = [each for each in execution["assertions"] if each["kind"] == "concerns"]
    assert test["status"] == status
    assert check["message"].startswith(message), check


def test_the_test_of_the_docs_passes(packages: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "extending.md").read_text("utf-8")
    found = re.search(r"<!-- check: tested -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found
    assert all(len(file.read_text().splitlines()) < 40 for file in EXAMPLE.rglob("*.py"))
    done = call(packages / "bin" / "python", "-c", f"{found[1]}\ntest_another_topic_fails()")
    assert done.returncode == 0, done.stderr


def test_a_recorded_run_is_read_without_the_package(run: Run, workspace: Workspace) -> None:
    assert run("test").returncode == 0
    for words in (
        ("report", "latest", "--format", "junit"),
        ("report", "latest", "--format", "sarif"),
        ("report", "latest", "--format", "html", "-o", "run.html"),
        ("show", "latest"),
        ("diff", "latest", "latest"),
        ("verify",),
    ):
        done = workspace.run(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    lacking = workspace.run("rescore", "latest")
    assert lacking.returncode == 1
    assert 'Unknown key "polite"' in lacking.stderr
    assert run("rescore", "latest").returncode == 0


def test_the_schema_has_the_options_of_the_package(run: Run, tmp_path: Path) -> None:
    done = run("schema")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    text = (tmp_path / "kindlm.yaml").read_text()
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(yaml.safe_load(text))
    for written, misspelt in (
        ("polite: {}", "polite: { word: [x] }"),
        ("prefix:", "sufix:"),
        ("orders:", "order:"),
    ):
        assert written in text
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(yaml.safe_load(text.replace(written, misspelt)))


def test_a_faulty_package_costs_only_what_needs_it(
    run: Run, packages: Path, tmp_path: Path
) -> None:
    [site] = packages.glob("lib/python*/site-packages")
    broken = site / "broken-1.dist-info"
    broken.mkdir()
    try:
        (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
        (broken / "entry_points.txt").write_text(
            "[kindlm.checks]\nbroken = not_there:X\n"
            "[kindlm.agents]\nhttp = example_plugin.clerk:Clerk\n"
        )
        assert run("test").returncode == 0
        listed = run("schema")
        assert json.loads(listed.stdout)["$defs"]["ExpectConfig"]["properties"]["polite"]
        assert 'The check "broken" of the package broken cannot be loaded' in listed.stderr
        assert '"http" of the package broken has a name that kindlm reserves' in listed.stderr
    finally:
        shutil.rmtree(broken)


@pytest.mark.parametrize("written", [b"[console_scripts]\nbroken\n", b"[x]\nbroken = b\xe4r\n"])
def test_a_package_whose_entry_points_cannot_be_read_is_named(
    run: Run, packages: Path, written: bytes
) -> None:
    [site] = packages.glob("lib/python*/site-packages")
    broken = site / "broken-1.dist-info"
    broken.mkdir()
    try:
        (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
        (broken / "entry_points.txt").write_bytes(written)
        done = run("schema")
        assert done.returncode == 1
        assert "cannot read the entry points of the package broken: " in done.stderr
        assert "itself failed" not in done.stderr
    finally:
        shutil.rmtree(broken)


def test_the_configuration_of_scenarios_names_an_adapter_of_the_package(
    run: Run, tmp_path: Path
) -> None:
    configuration = tmp_path / "kindlm.toml"
    configuration.write_text(
        '[agent]\ntype = "clerk"\nname = "desk"\ntimeout_ms = 5000\nreports_tools = true\n'
        'orders = { A1 = "delivered" }\n'
    )
    (tmp_path / "test_orders.py").write_text(
        "from kindlm import Trial, scenario\n\n"
        '@scenario("an order")\n'
        "async def test_order(t: Trial) -> None:\n"
        '    t.check(await t.agent.send("Where is A1?")).contains("delivered")\n'
    )
    done = run("test", "test_orders.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "desk" in done.stdout
    configuration.write_text('[agent]\ntype = "clerk"\ntimeoutMs = 5000\norders = {}\n')
    refused = run("test", "test_orders.py")
    assert 'Unknown key "timeoutMs" in agent' in refused.stderr, refused.stderr
    assert 'Did you mean "timeout_ms"?' in refused.stderr
