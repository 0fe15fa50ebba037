"""Run `kindlm test` as a step of a workflow, and compare the run with the base branch.

With a history server, runs are pushed to it, and a pull request is compared with the newest run of
its base branch there. Without one, the cache holds that run.

Reads `KINDLM_PATHS`, `KINDLM_ARGS`, `KINDLM_REPORTS`, `KINDLM_FAIL_ON_REGRESSION`, `KINDLM_CACHE`,
`KINDLM_URL`, `KINDLM_TOKEN` and the variables that GitHub sets. Writes the reports and the outputs
`passed`, `run` and `reports` of the step.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Return the exit code of the step."""
    given = os.environ
    reports = Path(given.get("KINDLM_REPORTS") or "kindlm-reports").absolute()
    reports.mkdir(parents=True, exist_ok=True)
    files = {"json": "report.json", "junit": "junit.xml", "sarif": "kindlm.sarif"}
    files |= {"html": "report.html", "markdown": "comment.md"}
    for name in files.values():
        (reports / name).unlink(missing_ok=True)

    command = ["kindlm", "test", *shlex.split(given.get("KINDLM_PATHS", ""))]
    command += shlex.split(given.get("KINDLM_ARGS", ""))
    if named := re.search(r"\0--db[=\0]([^\0]+)", "\0".join(command)):
        given["KINDLM_DB"] = named[1]  # where `kindlm diff` finds the run, too
    if not given.get("KINDLM_TOKEN"):  # pull requests from forks have none
        given.pop("KINDLM_URL", None)
    elif given.get("KINDLM_URL") and "--push" not in command:
        command += ["--push"]
    here = Path.cwd()
    is_push = given.get("GITHUB_REF_TYPE") == "branch" and given.get("GITHUB_EVENT_NAME") == "push"
    if is_push and not any((folder / ".git").exists() for folder in (here, *here.parents)):
        # In a container without git, the checkout has only files.
        given.setdefault("KINDLM_COMMIT", given["GITHUB_SHA"])
        given.setdefault("KINDLM_BRANCH", given["GITHUB_REF_NAME"])
    command += ["--reporter", "terminal"]
    for kind, name in files.items():
        command += ["--reporter", f"{kind}={reports / name}"]
    tested = run(command)

    write_output("passed", "true" if tested == 0 else "false")
    write_output("reports", str(reports))
    if not (reports / "report.json").exists():
        return tested
    tested_run = json.loads((reports / "report.json").read_text("utf-8"))["run"]["id"]
    write_output("run", tested_run)
    if given.get("KINDLM_CACHE") == "true" and not Path(".kindlm").exists():
        print(
            "::warning title=kindlm::The cache does not keep the history: the working-directory has"
            " no .kindlm. Set it to the folder of the project, such as that of kindlm.toml."
        )

    base = given.get("GITHUB_BASE_REF", "")
    regressed = base != "" and compare(base, tested_run, reports / "comment.md")
    if regressed and given.get("KINDLM_FAIL_ON_REGRESSION") == "true":
        print(f"::error title=kindlm::The comparison with the newest run of {base} failed.")
        return 1
    return tested


def run(command: list[str]) -> int:
    """Run a command to its end, and return its exit code.

    To cancel a job, a runner signals only this process, which passes the signal on.
    """
    process = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: process.send_signal(number))
    return process.wait()


def compare(base: str, run: str, comment: Path) -> bool:
    """Append what a run changes to the comment, and to the summary of the job.

    Returns whether the run got worse than the newest run of the base branch, or could not be
    compared; False if the branch has no run yet.
    """
    command = ["kindlm", "diff", "--base", base, run, "--format"]
    codes = {**os.environ, "KINDLM_EXIT_CODES": "pytest"}  # 5: there is no run of the branch
    found = subprocess.run(
        [*command, "json"], check=False, capture_output=True, text=True, env=codes
    )
    if not found.stdout.strip():
        sys.stderr.write(found.stderr)
        return found.returncode != 5
    report = comment.read_text("utf-8")
    # The report has the difference to the run before already; often that is the one of the base.
    if f"`{json.loads(found.stdout)['before']['id']}`" not in report:
        shown = subprocess.run([*command, "markdown"], check=False, capture_output=True, text=True)
        for path in (comment, Path(os.environ.get("GITHUB_STEP_SUMMARY") or os.devnull)):
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n{shown.stdout}")
    return found.returncode != 0


def write_output(name: str, value: str) -> None:
    """Set an output of the step; the values are ids and paths of one line."""
    with Path(os.environ.get("GITHUB_OUTPUT") or os.devnull).open("a", encoding="utf-8") as file:
        file.write(f"{name}={value}\n")


if __name__ == "__main__":
    sys.exit(main())
