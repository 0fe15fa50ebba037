"""`--reporter`, `--output` and `--label`: what cannot be meant is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindlm.cli.reporters import parse_reporters
from kindlm.errors import Err, Ok


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
    assert isinstance(parse_reporters(values, output), Err)


def test_each_report_has_its_file(here):
    assert isinstance(parse_reporters(["terminal", "junit=a.xml", "json=b.json"], None), Ok)


@pytest.mark.parametrize("file", ["kindlm.yaml", "./x/../kindlm.yaml", "link.yaml"])
def test_a_report_is_not_written_over_the_suite(kindlm, file):
    assert kindlm("init", ".").code == 0
    Path("link.yaml").symlink_to("kindlm.yaml")
    suite = Path("kindlm.yaml").read_bytes()
    outcome = kindlm("test", "--reporter", f"json={file}")
    assert outcome.code == 1
    assert "would be written over a suite" in outcome.err
    assert Path("kindlm.yaml").read_bytes() == suite
    assert not Path(".kindlm/kindlm.db").exists()


@pytest.mark.parametrize("beside", ["", "-wal"])
def test_no_report_is_written_over_the_history(kindlm, beside):
    history = f".kindlm/kindlm.db{beside}"
    assert kindlm("init", ".").code == 0
    assert kindlm("test", "-o", history).code == 1
    assert kindlm("test").code == 0
    for command in ("test", "report"):
        outcome = kindlm(command, "-o", history)
        assert outcome.code == 1
        assert "would be written over the history" in outcome.err
    assert kindlm("verify").code == 0


@pytest.mark.parametrize("label", ["latest", "previous", "baseline", "v1~2", "git:main"])
def test_a_label_is_no_name_of_another_run(kindlm, label):
    assert kindlm("init", ".").code == 0
    outcome = kindlm("test", "--label", label)
    assert outcome.code == 1
    assert "can not be a label" in outcome.err
    assert not Path(".kindlm/kindlm.db").exists()
