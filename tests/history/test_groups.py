"""Which parts of a group the history has."""

from __future__ import annotations

import pytest

from kindlm.history.groups import Shard, read_shard


def shard_run(history, make, name, shard, *, group="g", project="shop", finished=True):
    run = history.run(name, shard=shard, group=group, project=project)
    run.suite(tests=[make.planned()])
    run.execution()
    return run.finish() if finished else run.leave()


def test_what_is_missing_and_what_did_not_finish(history, make):
    shard_run(history, make, "aaaa2222", "1/4")
    view = shard_run(history, make, "bbbb2222", "2/4", finished=False)
    assert view.shard == Shard(2, 4, "g", missing=(3, 4), unfinished=(2,))


def test_a_part_that_finished_once_is_there_however_often_it_was_stopped(history, make):
    shard_run(history, make, "aaaa2222", "1/2", finished=False)
    shard_run(history, make, "bbbb2222", "1/2")
    view = shard_run(history, make, "cccc2222", "1/2", finished=False)
    assert view.shard == Shard(1, 2, "g", missing=(2,))


@pytest.mark.parametrize(
    "other", [{"group": "h"}, {"project": "garden"}, {"shard": "2/3"}, {"shard": "2/22"}]
)
def test_parts_of_other_groups_do_not_count(history, make, other):
    shard_run(history, make, "aaaa2222", **({"shard": "2/2"} | other))
    view = shard_run(history, make, "bbbb2222", "1/2")
    assert view.shard == Shard(1, 2, "g", missing=(2,))


def test_a_run_that_is_whole_is_no_shard(history):
    assert read_shard(history.reader(), "shop", None, "g") is None


def test_without_a_group_nothing_is_known_of_others(history):
    assert read_shard(history.reader(), "shop", "1/3", None) == Shard(1, 3, None)
