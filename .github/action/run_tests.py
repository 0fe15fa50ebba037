"""Run `kindlm test` as a step of a workflow, and compare the run with the base branch.

With a history server, runs are pushed to it, and a pull request is compared with the newest run of
its base branch there. Without one, the history with both comes from the cache: a push labels its
run with its branch, as in `branch:main`.

Reads `KINDLM_PATHS`, `KINDLM_ARGS`, `KINDLM_REPORTS`, `KINDLM_FAIL_ON_REGRESSION`, `KINDLM_URL`,
`KINDLM_TOKEN` and the variables that GitHub sets. Writes the reports and the outputs `passed`,
`run` and `reports` of the step.
"""

from __future__ import annotations

import json
import os
import shlex
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
    is_labelled = any(word.partition("=")[0] in ("--label", "--version") for word in command)
    is_push = given.get("GITHUB_REF_TYPE") == "branch" and given.get("GITHUB_EVENT_NAME") == "push"
    if is_push and not is_labelled:
        command += ["--label", label_of(given["GITHUB_REF_NAME"])]
    if has_server() and "--push" not in command:
        command += ["--push"]
    command += ["--reporter", "terminal"]
    for kind, name in files.items():
        command += ["--reporter", f"{kind}={reports / name}"]
    tested = subprocess.run(command, check=False).returncode

    write_output("passed", "true" if tested == 0 else "false")
    write_output("reports", str(reports))
    if not (reports / "report.json").exists():
        return tested
    run = json.loads((reports / "report.json").read_text("utf-8"))["run"]["id"]
    write_output("run", run)

    base = given.get("GITHUB_BASE_REF", "")
    regressed = base != "" and compare(base, run, reports / "comment.md")
    if regressed and given.get("KINDLM_FAIL_ON_REGRESSION") == "true":
        print(f"::error title=kindlm::The run got worse than the newest run of {base}.")
        return 1
    return tested


def label_of(branch: str) -> str:
    """Return the label of the runs of a branch; kindlm takes 200 characters."""
    return f"branch:{branch}"[:200]


def has_server() -> bool:
    """Return whether a history server is to be used; pull requests from forks have no token."""
    return bool(os.environ.get("KINDLM_URL") and os.environ.get("KINDLM_TOKEN"))


def compare(base: str, run: str, comment: Path) -> bool:
    """Append what a run changes to the comment, and to the summary of the job.

    Returns whether the run got worse than the newest run of the base branch, or could not be
    compared; False if the branch has no run yet.
    """
    sides = ["--base", base, run] if has_server() else [label_of(base), run]
    if (
        not has_server()
        and subprocess.run(
            ["kindlm", "show", sides[0]], check=False, capture_output=True
        ).returncode
    ):
        sys.stderr.write(f"No run has the label {sides[0]} yet: nothing to compare with.\n")
        return False
    command = ["kindlm", "diff", *sides, "--format"]
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
