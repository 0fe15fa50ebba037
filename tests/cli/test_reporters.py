"""`--reporter`, `--output` and `--label`: what cannot be meant is refused before anything runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import typer

from kindlm.cli.reporters import parse_reporters, write_reports
from kindlm.reports.report_registry import Reporter, ReportOptions


@pytest.mark.parametrize(
    ("values", "output"),
    [
        (["junit=a.xml", "json=a.xml"], None),
        (["junit=a.xml", "json=./folder/../a.xml"], None),
        (["junit=a.xml", "json"], Path("a.xml")),
        (["json="], None),
    ],
)
def test_a_file_takes_one_report_and_has_a_name(here, values, output):
    with pytest.raises(typer.Exit):
        parse_reporters(values, output)


def test_each_report_has_its_file(here):
    assert len(parse_reporters(["terminal", "junit=a.xml", "json=b.json"], None)) == 3


def test_a_report_is_not_written_over_the_suite(kindlm):
    assert kindlm("init", ".").code == 0
    Path("link.yaml").symlink_to("kindlm.yaml")
    suite = Path("kindlm.yaml").read_bytes()
    for file in ("./x/../kindlm.yaml", "link.yaml"):
        outcome = kindlm("test", "--reporter", f"json={file}")
        assert outcome.code == 1
        assert "would overwrite a suite" in outcome.err
    assert Path("kindlm.yaml").read_bytes() == suite
    assert not Path(".kindlm/kindlm.db").exists()


def test_a_report_is_not_written_over_what_a_suite_is_made_of(kindlm):
    assert kindlm("init", ".").code == 0
    suite = Path("kindlm.yaml")
    template = "compliance: {enabled: true, framework: custom, template: t.md}"
    suite.write_text(f"{suite.read_text()}\n{template}\n")
    Path("t.md").write_text("Mine.")
    for option in (("--reporter", "junit=t.md"), ("--pdf", "t.md")):
        outcome = kindlm("test", *option)
        assert outcome.code == 1
        assert "would overwrite a file that a suite refers to" in outcome.err
    assert kindlm("test").code == 0
    before = suite.read_bytes()
    for option in ("-o", "--pdf"):
        outcome = kindlm("report", "--format", "compliance", option, "kindlm.yaml")
        assert outcome.code == 1
        assert "would overwrite a suite" in outcome.err
    assert suite.read_bytes() == before
    assert Path("t.md").read_text() == "Mine."


@pytest.mark.parametrize("beside", ["", "-wal"])
def test_no_report_is_written_over_the_history(kindlm, beside):
    history = f".kindlm/kindlm.db{beside}"
    assert kindlm("init", ".").code == 0
    assert kindlm("test", "-o", history).code == 1
    assert kindlm("test").code == 0
    for command in ("test", "report"):
        outcome = kindlm(command, "-o", history)
        assert outcome.code == 1
        assert "would overwrite the history" in outcome.err
    assert kindlm("verify").code == 0


def test_a_label_is_no_name_of_another_run(kindlm):
    assert kindlm("init", ".").code == 0
    for label in ("latest", "previous", "baseline", "v1~2", "git:main"):
        outcome = kindlm("test", "--label", label)
        assert outcome.code == 1
        assert "cannot be a label" in outcome.err
    assert not Path(".kindlm/kindlm.db").exists()


def test_a_dash_is_standard_output(kindlm, here):
    assert kindlm("init", ".").code == 0
    for arguments in (["json=-"], ["json", "-o", "-"]):
        outcome = kindlm("test", "--reporter", *arguments)
        assert json.loads(outcome.out)["schemaVersion"] == 1
    assert not Path("-").exists()
    with pytest.raises(typer.Exit):
        parse_reporters(["json=-", "junit"], None)


def test_a_reader_that_leaves_early_costs_no_file(kindlm, process):
    assert kindlm("init", ".").code == 0
    started = process("test", "--reporter", "terminal", "--reporter", "junit=a.xml")
    started.stdout.close()
    started.stderr.close()
    assert started.wait(60) == 1
    assert Path("a.xml").exists()


def test_a_report_that_would_be_a_folder_is_refused_before_anything_runs(kindlm):
    assert kindlm("init", ".").code == 0
    Path("out").mkdir()
    outcome = kindlm("test", "-o", "out")
    assert outcome.code == 1
    assert "it is a folder" in outcome.err
    assert not Path(".kindlm/kindlm.db").exists()


def test_options_have_the_limits_of_the_configuration(kindlm):
    schema = json.loads(kindlm("schema").out)
    limits = schema["$defs"]["DefaultsConfig"]["properties"]
    assert kindlm("init", ".").code == 0
    for option, key in (("--runs", "repeat"), ("--concurrency", "concurrency")):
        most = limits[key]["maximum"]
        assert str(most) in kindlm("test", option, str(most + 1)).err
        assert kindlm("test", option, str(most), "--dry-run").code == 0


def test_a_run_without_any_time_starts_nothing(kindlm):
    assert kindlm("init", ".").code == 0
    outcome = kindlm("test", "--max-time", "0", "--reporter", "json")
    assert outcome.code == 1
    report = json.loads(outcome.out)
    assert report["run"]["status"] == "aborted"
    assert not any(test["executions"] for test in report["tests"])


def test_a_report_that_is_cut_off_leaves_the_one_before_and_nothing_else(here):
    def cut_off(_view, out, _options):
        out.write("half of")
        raise KeyboardInterrupt

    Path("report.json").write_text("the one before")
    reporter = Reporter("json", cut_off, Path("report.json"))
    with pytest.raises(KeyboardInterrupt):
        write_reports([reporter], None, ReportOptions())
    assert Path("report.json").read_text() == "the one before"
    assert [path.name for path in Path().iterdir()] == ["report.json"]


def test_others_may_read_a_report_as_the_umask_says(here):
    def write(_view, out, _options):
        out.write("é\n")

    before = os.umask(0o027)
    try:
        reporter = Reporter("json", write, Path("a/b"))
        assert write_reports([reporter], None, ReportOptions()) == []
    finally:
        os.umask(before)
    assert Path("a/b").stat().st_mode & 0o777 == 0o640
    assert Path("a/b").read_bytes() == "é\n".encode()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no memory that is a folder")
def test_a_folder_in_memory_is_one_like_any_other(here):
    def write(_view, out, _options):
        out.write("é\n")

    with TemporaryDirectory(dir="/dev/shm") as folder:
        reporter = Reporter("json", write, Path(folder, "a/b"))
        assert write_reports([reporter], None, ReportOptions()) == []
        assert Path(folder, "a/b").read_bytes() == "é\n".encode()
