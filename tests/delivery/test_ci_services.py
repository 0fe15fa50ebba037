"""Templates for CI services: their steps run in bash, most of them with a `kindlm` that forks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import loaded_kindlm
import pytest
import yaml
from github_stand_in import serve_github

from kindlm.cli.pull_request import CommentError, keep_comment

ROOT = Path(__file__).parents[2]
INSTALLED = str(Path(sys.executable).parent)
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))

SUITE = """
kindlm: 1
project: shop
suite: { name: orders }
providers: { fake: { type: scripted, replies: [{ text: "Delivered on Tuesday." }] } }
models: [{ id: fake-model, provider: fake, model: fake-1 }]
prompts: { ask: { user: "Where is my order?" } }
tests: [{ name: status, prompt: ask, repeat: 5, expect: { output: { contains: [delivered] } } }]
"""

TWO_TESTS = """
kindlm: 1
project: shop
suite: { name: orders }
providers: { fake: { type: scripted, replies: [{ text: "Delivered on Tuesday." }] } }
models: [{ id: fake-model, provider: fake, model: fake-1 }]
prompts: { ask: { user: "Where is my order?" } }
tests:
  - { name: status, prompt: ask, repeat: 5, expect: { output: { contains: [delivered] } } }
  - { name: day, prompt: ask, repeat: 5, expect: { output: { contains: [tuesday] } } }
"""

SLOW = """
kindlm: 1
suite: { name: slow }
tests:
  - { name: waits, command: "sh -c 'touch started; sleep 60'", expect: { output: { contains: x } } }
"""


@pytest.fixture
def github():
    with serve_github() as (url, served):
        yield url, served.comments


@pytest.fixture(scope="module")
def forks():
    """What the PATH begins with for a `kindlm` that need not be loaded each time."""
    with loaded_kindlm.command() as folder:
        yield f"{folder}:{INSTALLED}"


class Job:
    """Runs what the action gives to bash, as a runner would: what it uses of others is left out."""

    def __init__(self, folder: Path, api: str, path: str) -> None:
        self.folder = folder
        self.api = api
        self.path = path
        self.summary = ""
        self.outputs: dict[str, str] = {}
        self.cancel_at: Path | None = None
        self.printed = ""

    def run(
        self, event: dict[str, str], pull_request: str = "", index: int = 0, **inputs: str
    ) -> int:
        defaults = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
        known = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()}
        known |= {"github.action_path": str(ROOT), "github.token": "a-token"}
        known |= {"github.workflow": "ci", "github.job": "agents", "inputs.token": "a-token"}
        known["strategy.job-index"] = str(index)
        known["github.event.pull_request.number"] = pull_request
        code = 0
        for step in ACTION["runs"]["steps"]:
            if "run" not in step or ("pull_request" in step.get("if", "") and not pull_request):
                continue
            known |= {f"steps.test.outputs.{name}": at for name, at in self.outputs.items()}
            done = self.step(step, known, event)
            code = code or done.returncode
        return code

    def step(self, step, known, event):
        files = {name: self.folder / name for name in ("out", "summary.md", "path")}
        for file in files.values():
            file.write_text("")
        env = {
            **os.environ,
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(files["out"]),
            "GITHUB_STEP_SUMMARY": str(files["summary.md"]),
            "GITHUB_PATH": str(files["path"]),
            "GITHUB_API_URL": self.api,
            "GITHUB_REPOSITORY": "acme/shop",
            "GITHUB_REF_TYPE": "branch",
            "GITHUB_SHA": "a1" * 20,
            **event,
            **{name: fill(value, known) for name, value in step["env"].items()},
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        piped = subprocess.PIPE
        done = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=piped, stderr=piped, text=True
        )
        if self.cancel_at is not None and step.get("id") == "test":
            while not self.cancel_at.exists() and done.poll() is None:
                time.sleep(0.05)
            done.send_signal(signal.SIGINT)  # as a runner, to the shell alone
        self.printed = done.communicate()[0]
        for line in files["out"].read_text().splitlines():
            name, _, value = line.partition("=")
            self.outputs[name] = value
        self.summary = files["summary.md"].read_text() or self.summary
        return done


def fill(value: str, known: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], value)


def test_a_pull_request_is_compared_with_its_base_and_has_one_comment(tmp_path, github, forks):
    api, comments = github
    mark = "<!-- kindlm ci/agents/0/. -->\nmine"
    stranger = {"id": 1, "user": {"login": "dependabot[bot]"}, "body": mark}
    empty = {"id": 2, "user": None, "body": None}
    comments += [dict(stranger), empty]
    job = Job(tmp_path, api, forks)
    suite = tmp_path / "kindlm.yaml"
    branch = "main" + "x" * 250
    push = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": branch}
    pull = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": branch}

    suite.write_text(SUITE)
    assert job.run(push) == 0
    of_main = job.outputs["run"]
    assert job.outputs["passed"] == "true"
    assert comments == [stranger, empty]

    suite.write_text(SUITE.replace("Delivered on", "Lost on"))
    assert job.run(pull, "7") == 1
    assert job.outputs["passed"] == "false"
    assert {path.name for path in Path(job.outputs["reports"]).iterdir()} == {
        "comment.md",
        "junit.xml",
        "kindlm.sarif",
        "report.html",
        "report.json",
    }
    first, _, second = comments
    assert first == stranger
    assert of_main in second["body"]
    assert "REGRESSED" in second["body"]
    assert "FAILED" in job.summary

    # The second push of the branch: the run before is its own, so main's is compared, too.
    # A pull request from a fork has the address of the server, and no token.
    assert job.run(pull, "7", **{"history-url": "https://history.invalid"}) == 1
    assert [comment["id"] for comment in comments] == [1, 2, 100]
    assert of_main in comments[2]["body"]
    assert "REGRESSED" in job.summary

    suite.write_text(SUITE)
    assert job.run(pull, "7") == 0
    assert job.outputs["passed"] == "true"
    assert "PASSED" in comments[2]["body"]


def test_each_job_of_a_matrix_has_a_comment(tmp_path, github, forks):
    api, comments = github
    job = Job(tmp_path, api, forks)
    pull = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
    (tmp_path / "kindlm.yaml").write_text(SUITE.replace("Delivered on", "Lost on"))
    assert job.run(pull, "7", index=0) == 1
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    assert job.run(pull, "7", index=1) == 0
    red, green = (comment["body"] for comment in comments)
    assert "FAILED" in red
    assert "PASSED" in green


@pytest.mark.parametrize("args", ["", "--label mine"])
def test_a_pull_request_is_not_compared_with_a_cancelled_run_of_its_base(
    tmp_path, github, forks, args
):
    api, _ = github
    job = Job(tmp_path, api, forks)
    (tmp_path / "kindlm.yaml").write_text(TWO_TESTS)
    push = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}
    assert job.run(push, args=args) == 0
    (tmp_path / "kindlm.yaml").write_text(TWO_TESTS.replace("Delivered on", "Lost on"))
    assert job.run(push, args=f"{args} -j 1 --fail-fast") == 1
    (tmp_path / "kindlm.yaml").write_text(TWO_TESTS.replace("Tuesday", "Monday"))
    pull = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
    tolerant = {"args": f"{args} --gate 0", "fail-on-regression": "true"}
    assert job.run(pull, "7", **tolerant) == 1
    (tmp_path / "kindlm.yaml").write_text(TWO_TESTS)
    assert job.run(pull, "7", **tolerant) == 0


@pytest.mark.parametrize("option", ["--db {}", "--db={}"])
def test_a_pull_request_is_compared_in_the_history_of_the_options(tmp_path, github, forks, option):
    api, comments = github
    job = Job(tmp_path, api, forks)
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    named = option.format(".kindlm/agents.db")
    push = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}
    pull = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
    assert job.run(push, args=named) == 0
    main = job.outputs["run"]
    assert job.run(pull, pull_request="7", args=named, **{"fail-on-regression": "true"}) == 0
    assert f"`{main}`" in comments[0]["body"]


def test_a_history_that_the_cache_does_not_keep_is_a_warning(tmp_path, github, forks):
    (tmp_path / "kindlm.toml").write_text("")
    service = tmp_path / "service"
    (service / "suites").mkdir(parents=True)
    (service / "suites" / "kindlm.yaml").write_text(SUITE)
    event = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}
    above, below = Job(tmp_path, github[0], forks), Job(service, github[0], forks)
    assert below.run(event, paths="suites") == 0
    assert "::warning title=kindlm::The cache does not keep the history" in below.printed
    assert below.run(event, paths="suites", cache="false") == 0
    assert above.run(event, paths="service/suites") == 0
    assert "::warning" not in below.printed + above.printed


def test_a_cancelled_job_stops_the_run(tmp_path, github):
    (tmp_path / "kindlm.yaml").write_text(SLOW)
    job = Job(tmp_path, github[0], INSTALLED)
    job.cancel_at = tmp_path / "started"
    assert job.run({"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}) == 1
    report = json.loads((tmp_path / "kindlm-reports" / "report.json").read_text("utf-8"))
    assert report["run"]["status"] == "interrupted"


def test_a_pull_request_takes_the_newest_history_of_its_base():
    """GitHub looks for each key among the caches of the pull request before those of its base."""
    steps = {step.get("name"): step for step in ACTION["runs"]["steps"]}

    def key(name: str, ref: str, job: int = 0, of: str = "key") -> str:
        known = {"inputs.working-directory": ".", "github.workflow": "ci", "github.job": "agents"}
        known |= {"github.base_ref": "main", "github.run_id": "9", "github.run_attempt": "1"}
        known |= {"github.ref": ref, "strategy.job-index": str(job)}
        return fill(steps[name]["with"][of], known)

    name = "Restore the history of the base branch"
    wanted = key(name, "refs/pull/7/merge", of="restore-keys")
    assert key("Save the history", "refs/heads/main").startswith(wanted)
    for ref in ("refs/pull/7/merge", "refs/heads/main2"):
        assert not key("Save the history", ref).startswith(wanted)
    assert not key("Save the history", "refs/heads/main", job=1).startswith(wanted)


def test_a_pull_request_is_compared_with_the_history_server(tmp_path, github, forks):
    api, comments = github
    create = ["token", "create", "--name", "ci", "--db", "team.db"]
    token = loaded_kindlm.run(create, cwd=tmp_path, env=os.environ, timeout_s=60.0)
    server = loaded_kindlm.start(
        ["serve-history", "--db", "team.db", "--port", "0"],
        cwd=tmp_path,
        env=os.environ,
        stderr=subprocess.DEVNULL,
    )
    job = Job(tmp_path, api, forks)
    suite = tmp_path / "kindlm.yaml"
    pull = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main", "KINDLM_BRANCH": "x"}
    push = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main", "KINDLM_BRANCH": "main"}
    try:
        inputs = {
            "history-url": server.stdout.readline().partition("/-/")[0],
            "history-token": token.stdout.strip(),
            "fail-on-regression": "true",
        }
        tolerant = SUITE + "gates: { passRateMin: 0 }\n"
        suite.write_text(tolerant)
        commit = {"KINDLM_COMMIT": "a1" * 20}
        assert job.run(pull | commit, "7", **inputs) == 0  # main has no run yet
        assert job.run(push | commit, **inputs) == 0
        of_main = job.outputs["run"]
        shutil.rmtree(tmp_path / ".kindlm")
        suite.write_text(tolerant.replace("Delivered on", "Lost on"))
        assert job.run(pull | commit, "7", **inputs) == 1
        # A regression fails the job only where it is to.
        assert job.run(pull | commit, "7", **{**inputs, "fail-on-regression": "false"}) == 0
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    (comment,) = comments
    assert f"`{of_main}`" in comment["body"]
    assert "REGRESSED" in comment["body"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or inputs["history-token"].encode() not in path.read_bytes()


def test_a_run_that_cannot_start_fails_the_step_and_writes_no_comment(tmp_path, github, forks):
    api, comments = github
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
    assert Job(tmp_path, api, forks).run(event, "7", args="--repeat none") == 1
    assert comments == []


def test_the_comment_of_an_earlier_run_is_not_left_green_if_a_run_cannot_start(
    tmp_path, github, forks
):
    api, comments = github
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
    job = Job(tmp_path, api, forks)
    assert job.run(event, "7") == 0
    assert "PASSED" in comments[0]["body"]
    assert job.run(event, "7", args="--repeat none") == 1
    (comment,) = comments
    assert "PASSED" not in comment["body"]
    assert "kindlm: NO REPORT" in comment["body"]
    assert job.run(event, "7") == 0
    assert "PASSED" in comments[0]["body"]


def test_a_comment_that_is_refused_does_not_fail_the_job(tmp_path, forks):
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    job = Job(tmp_path, "http://127.0.0.1:9", forks)
    assert job.run({"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}, "7") == 0


@pytest.mark.parametrize("answer", [{"message": "no list"}, [{"body": 5}]])
def test_an_answer_of_another_form_is_a_refusal(tmp_path, github, answer):
    api, comments = github
    comments.append(answer)
    environ = {"GITHUB_TOKEN": "a-token", "GITHUB_REPOSITORY": "acme/shop", "PULL_REQUEST": "7"}
    with pytest.raises(CommentError):
        keep_comment(environ | {"GITHUB_API_URL": api}, tmp_path, "PASSED")


def test_a_token_that_ends_with_a_line_break_is_sent_without_it(tmp_path, github):
    environ = {"GITHUB_TOKEN": "a-token\n", "GITHUB_REPOSITORY": "acme/shop", "PULL_REQUEST": "7"}
    assert keep_comment(environ | {"GITHUB_API_URL": github[0]}, tmp_path, "PASSED")


def test_a_token_that_cannot_be_sent_is_not_quoted(tmp_path, github):
    environ = {"GITHUB_TOKEN": "a-to\nken", "GITHUB_REPOSITORY": "acme/shop", "PULL_REQUEST": "7"}
    with pytest.raises(CommentError) as error:
        keep_comment(environ | {"GITHUB_API_URL": github[0]}, tmp_path, "PASSED")
    assert "a-to" not in str(error.value)


def test_an_answer_that_breaks_off_is_a_refusal(tmp_path):
    class Cut(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b'{"login"')

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.serve_forever).start()
        api = f"http://127.0.0.1:{server.server_port}"
        environ = {"GITHUB_TOKEN": "a", "GITHUB_REPOSITORY": "acme/shop", "PULL_REQUEST": "7"}
        with pytest.raises(CommentError, match="IncompleteRead"):
            keep_comment(environ | {"GITHUB_API_URL": api}, tmp_path, "PASSED")
        server.shutdown()


def test_paths_and_options_are_words_and_never_shell(tmp_path, github, forks):
    api, _ = github
    (tmp_path / "two words.yaml").write_text(SUITE)
    job = Job(tmp_path, api, forks)
    event = {"GITHUB_EVENT_NAME": "workflow_dispatch"}
    assert job.run(event, paths="'two words.yaml'", args="--repeat 1; touch x") == 1
    assert job.run(event, paths="'two words.yaml'", args="--repeat 1") == 0
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", ["--label mine", "--label=mine", "--version mine"])
def test_a_label_in_the_options_replaces_that_of_the_branch(tmp_path, github, forks, option):
    (tmp_path / "kindlm.yaml").write_text(SUITE)
    job = Job(tmp_path, github[0], forks)
    event = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}
    assert job.run(event, args=option) == 0
    shown = loaded_kindlm.run(["show", "mine"], cwd=tmp_path, env=os.environ, timeout_s=60.0)
    assert job.outputs["run"] in shown.stdout


def test_every_action_is_pinned_by_its_hash():
    used = []
    for path in (ROOT / "action.yml", *(ROOT / ".github" / "workflows").iterdir()):
        used += re.findall(r"uses: (.+)", path.read_text("utf-8"))
    assert used
    assert not [each for each in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v[\d.]+", each)]


def test_the_linters_of_the_delivery_have_nothing_to_say():
    tools = Path(sys.executable).parent
    scripts = [*(ROOT / ".github").rglob("*.sh")]
    workflows = [ROOT / "action.yml", ROOT / ".github" / "workflows"]
    for command in (
        [tools / "shellcheck", *scripts],
        [tools / "hadolint", ROOT / ".github" / "Dockerfile"],
        [tools / "zizmor", "--offline", "--quiet", *workflows],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_gitlab_job_compares_with_the_target_branch(tmp_path, forks):
    """The lines of the template as a runner gives them to a shell; kindlm is installed already."""
    template = yaml.safe_load((ROOT / "examples/ci/kindlm.gitlab-ci.yml").read_text("utf-8"))
    job = template[".kindlm"]
    lines = [line for line in job["script"] if not line.startswith("pip install ")]
    path = f"{forks}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "KINDLM_PATHS": "", "KINDLM_ARGS": ""}
    variables["CI_COMMIT_SHA"] = "a1" * 20

    def run(lines, **ci):
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(lines)],
            cwd=tmp_path,
            env={**variables, **ci},
            capture_output=True,
            text=True,
            check=False,
        )

    (tmp_path / "kindlm.yaml").write_text(SUITE)
    assert run(lines, CI_COMMIT_BRANCH="main").returncode == 0
    (tmp_path / "kindlm.yaml").write_text(SUITE.replace("Delivered on", "Lost on"))
    assert run(lines).returncode == 1
    compared = run(job["after_script"], CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")
    assert "REGRESSED" in compared.stdout
    junit = tmp_path / job["artifacts"]["reports"]["junit"]
    assert junit.read_text("utf-8").startswith("<?xml")


def test_the_pre_commit_hook_names_the_suite_that_is_wrong(tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert re.search(hook["files"], "agents/kindlm.yaml")
    assert re.search(hook["files"], "tests/refunds.yml")
    assert not re.search(hook["files"], "docker-compose.yaml")
    (tmp_path / "kindlm.yaml").write_text(SUITE.replace("contains", "contain"))
    program, *arguments = hook["entry"].split()
    assert program == "kindlm"
    done = loaded_kindlm.run(
        [*arguments, "kindlm.yaml"], cwd=tmp_path, env=os.environ, timeout_s=60.0
    )
    assert done.returncode == 1
    assert "kindlm.yaml:8" in done.stderr
