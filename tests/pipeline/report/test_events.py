"""Events that the curves mark, read from what a stage records."""

from dataclasses import replace

import pytest

from veriloop.pipeline.report.events import events
from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.runs.record import StageRecord


def spans(stage):
    return {kind.id: list(kind.spans) for kind in events(stage)}


@pytest.mark.parametrize(
    ("algorithm", "replaced"),
    [
        ({"reference_every": 8, "kl_coefficient": 0.01}, [2, 4]),
        ({"reference_every": 6, "kl_coefficient": 0.01}, [2, 4]),  # due within a step: after it
        ({"reference_every": 0, "kl_coefficient": 0.01}, []),  # never replaced
        ({"reference_every": 8, "kl_coefficient": 0.0}, []),  # no reference
        ({}, []),  # a stage without a policy update
    ],
)
def test_references_are_replaced_by_the_interval_of_the_recipe(stage, algorithm, replaced):
    told = stage(optimizer_steps=[0, 4, 8, 12, 16])
    told.entry["inputs"]["recipe"]["algorithm"] = algorithm
    assert spans(told).get("reference", []) == [(step, step) for step in replaced]


def test_consecutive_stale_steps_are_one_span(stage):
    assert spans(stage(staleness=[0.0, 4.0, 4.0, 0.0, 4.0])) == {"ahead": [(1, 2), (4, 4)]}


def test_evaluations_of_a_step_are_one_event(stage):
    rows = [{"step": 5}, {"step": 0}, {"step": 5}]
    assert spans(replace(stage(), evaluations=rows)) == {"evaluation": [(0, 0), (5, 5)]}


def test_a_resumed_stage_has_the_steps_after_which_it_continued(run):
    folder = run(steps=6)
    record = StageRecord(folder / "zero", tensorboard=False)
    for step in (4, 3, 5):  # from step 3, an older checkpoint, the resumption after 4 is undone
        record.write_resume(step)
    assert spans(read_run(folder).stages[0]) == {"resume": [(3, 3), (5, 5)]}


def test_a_stage_without_events_marks_none(stage):
    assert events(stage(reward=[0.1, 0.2])) == []
