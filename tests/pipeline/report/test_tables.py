"""Curves, tables and facts of a run, made from its records."""

import json
from dataclasses import replace

import pytest

from veriloop.pipeline.report import identity_facts, tables
from veriloop.pipeline.report.curves import GROUPS, curves
from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.report.rollout_stats import RolloutStats, collect_stats


def charts(told):
    return {chart["id"]: chart for group in told["groups"] for chart in group["charts"]}


def test_every_metric_is_drawn_once(stage):
    names = {"reward": [1, 2], "my/own": [3, 4], "time/a": [1, 1], "rewards/x/mean/y": [0, 1]}
    told = curves(stage(**names), RolloutStats())
    drawn = [s["name"] for c in charts(told).values() for s in c["series"]]
    assert sorted(drawn) == sorted(names)
    assert told["groups"][-1]["name"] == "Everything else"
    assert charts(told)["my/own"]["series"][0]["y"] == [3, 4]


def test_every_picture_says_what_a_good_one_looks_like():
    every = [chart for group in GROUPS.values() for chart in group]
    assert len({chart.id for chart in every}) == len(every) and all(c.good for c in every)


def test_groups_without_a_gradient_are_a_line_beside_those_all_right_and_all_wrong(stage):
    """Which may have one by the rest of their reward: more are all wrong here than are equal."""
    told = stage(
        frac_reward_zero_std=[0.25], frac_groups_all_right=[0.0], frac_groups_all_wrong=[1.0]
    )
    chart = charts(curves(told, RolloutStats()))["zero-variance"]
    assert [(s["label"], s["y"]) for s in chart["series"]] == [
        ("equal rewards", [0.25]), ("all right", [0.0]), ("all wrong", [1.0]),
    ]  # fmt: skip
    assert chart["style"] == "lines"


@pytest.mark.parametrize("name", ["accuracy", "rewards/accuracies"])
def test_preferences_have_their_chart_whether_a_reward_model_or_a_policy_learns_them(stage, name):
    told = stage(kind="preference", **{name: [0.5, 0.75]})
    drawn = curves(told, RolloutStats())
    assert [group["name"] for group in drawn["groups"]] == ["Policy"]
    [series] = charts(drawn)["preference"]["series"]
    assert (series["label"], series["y"]) == ("training", [0.5, 0.75])


def test_a_metric_that_some_steps_lack_has_gaps(stage):
    told = replace(stage(), metrics=[{"step": 1, "loss": 1.0}, {"step": 2, "eval_loss": 2.0}])
    series = charts(curves(told, RolloutStats()))["loss"]["series"]
    assert {s["label"]: s["y"] for s in series} == {"loss": [1.0, None], "held out": [None, 2.0]}


def test_a_long_curve_is_thinned_and_keeps_its_end(stage):
    told = curves(stage(reward=[float(i) for i in range(2000)]), RolloutStats())
    assert told["every"] == 4 and told["steps"][:2] == [0, 4] and told["steps"][-1] == 1999
    assert len(charts(told)["reward"]["series"][0]["y"]) == len(told["steps"]) == 501


def test_a_metric_of_few_steps_of_a_long_curve_is_drawn_whole(stage):
    held_out = {7: 3.0, 1001: 2.0, 1702: 1.0}
    rows = [
        {"step": i, "loss": 1.0} | ({"eval_loss": held_out[i]} if i in held_out else {})
        for i in range(2000)
    ]
    told = curves(replace(stage(), metrics=rows), RolloutStats())
    [loss, held] = charts(told)["loss"]["series"]
    assert {s: y for s, y in zip(told["steps"], held["y"], strict=True) if y} == held_out
    assert len(loss["y"]) == len(told["steps"]) == 501 + 3


def test_a_metric_of_many_steps_but_not_most_is_thinned_for_itself(stage):
    rows = [{"step": i, "loss": 1.0} | ({"mine": 2.0} if i % 3 == 1 else {}) for i in range(6000)]
    told = curves(replace(stage(), metrics=rows), RolloutStats())
    mine = charts(told)["mine"]["series"][0]["y"]
    assert 400 <= sum(y is not None for y in mine) <= 800 and len(mine) < 1300


def test_the_reward_has_its_spread_and_rollouts_add_curves(run):
    told = read_run(run(steps=2)).stages[0]
    found = charts(curves(told, collect_stats(told.rollout_files)))
    assert found["reward"]["series"][0]["band"] == [0.3, 0.3]
    assert found["length-right"]["series"][0]["y"] == [3.0, 3.0]
    assert found["tokens"]["series"][0]["y"] == [500.0, 500.0]


def test_held_out_figures_come_with_their_intervals(stage):
    rows = [
        {"step": 0, "pass@1": 0.2, "pass@1 95%": [0.1, 0.3]},
        {"step": 9, "pass@1": 0.5, "pass@1 95%": [0.4, 0.6]},
    ]
    [series] = charts(curves(replace(stage(), evaluations=rows), RolloutStats()))["held-out"][
        "series"
    ]
    assert (series["x"], series["y"]) == ([0, 9], [0.2, 0.5])
    assert (series["low"], series["high"]) == ([0.1, 0.4], [0.3, 0.6])


def test_evaluations_of_a_part_of_the_questions_are_a_line_of_their_own(stage):
    """Sources have other shares in a part: the policy may be the same where the figure is not."""
    rows = [
        {"step": step, "full": full, "problems": 530 if full else 128, "pass@1": value}
        for step, full, value in ((0, True, 0.6), (5, False, 0.4), (9, False, 0.5), (14, True, 0.7))
    ]
    series = charts(curves(replace(stage(), evaluations=rows), RolloutStats()))["held-out"][
        "series"
    ]
    assert [(one["label"], one["x"], one["y"]) for one in series] == [
        ("pass@1", [0, 14], [0.6, 0.7]), ("pass@1, 128 questions", [5, 9], [0.4, 0.5]),
    ]  # fmt: skip


def test_figures_have_their_gain_where_it_was_recorded(stage):
    before = {"pass@1": 0.2, "pass@1 95%": [0.1, 0.3], "format": 0.5, "format 95%": [0.4, 0.6]}
    after = {"pass@1": 0.5, "pass@1 95%": [0.4, 0.6], "format": 0.6, "format 95%": [0.5, 0.7]}
    measured = stage(before=before, after=after | {"mean_length": 7.0})
    measured.entry["gains"] = {"pass@1": 0.3, "pass@1 95%": [0.25, 0.35]}
    first, second = tables.figures(measured)
    assert (first.name, first.gain_text) == ("pass@1", "+0.300 (+0.250 to +0.350)")
    assert (second.name, second.gain_text) == ("format", "–")
    assert first.before_95 == (0.1, 0.3) and second.after_95 == (0.5, 0.7)


def test_goals_tell_what_was_missed(stage):
    told = stage()
    told.entry["goals"] = {
        "pass@1": {"at_least": 0.9, "value": 0.85, "met": False},
        "format": {"at_least": 0.9, "value": 0.95, "met": True},
        "length": {"at_most": 60.0, "value": None, "met": False},
    }
    assert tables.goals(told) == (
        "missed: pass@1 0.85, target ≥ 0.9; length not reported, target ≤ 60"
    )
    assert tables.goals(stage()) == "–"


def test_how_a_run_ended(run):
    told = read_run(run(steps=1))
    assert tables.status_line(told) == "1 of 1 started stages done"
    told.stages[0].entry["status"] = "failed"
    assert tables.status_line(told) == "0 of 1 started stages done; zero failed"


def test_a_card_tells_rows_in_and_why_others_were_dropped(run):
    folder = run(steps=1)
    card = {"kept": 400, "dropped": {"wrong": 90, "duplicate": 10}}
    (folder / "zero/data.card.json").write_text(json.dumps(card))
    [told] = read_run(folder).stages
    assert identity_facts.rows_of(told) == (500, 400, {"wrong": 90, "duplicate": 10})


def test_rows_that_were_only_read_are_reported_too(stage):
    told = stage()
    assert identity_facts.rows_of(told) is None
    told.entry["outputs"] = {"rows": 90, "too_long": 6, "held_out": 4}
    assert identity_facts.rows_of(told) == (100, 90, {"too long": 6, "held out": 4})


def test_a_stage_that_samples_its_pairs_has_no_rows(stage):
    """Its rows are held out, which is no share of anything that it learns from."""
    counts = {"examples": 0, "held_out": 16, "too_long": 0}
    told = stage(reward=[1.0, 2.0])
    told = replace(told, entry={**told.entry, "outputs": counts})
    assert identity_facts.rows_of(told) is None
    offline = replace(told, metrics=[{"step": 1, "loss": 1.0}])
    assert identity_facts.rows_of(offline) == (16, 0, {"held out": 16})


def test_a_recipe_is_compared_with_the_shipped_one(run):
    from veriloop.pipeline.config.load import read

    shipped = read("tiny/zero").model_dump(mode="json")
    [told] = read_run(run(steps=1, recipe=shipped | {"steps": 7})).stages
    name, found = identity_facts.against_shipped(told)
    assert name == "tiny/zero" and found == [("steps", shipped["steps"], 7)]
    [other] = read_run(run("mine", steps=1)).stages
    assert identity_facts.against_shipped(other) == ("", [])


def test_differences_show_what_one_side_lacks():
    found = identity_facts.differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "d": 3})
    assert found == [("a.c", 2, None), ("d", None, 3)]


@pytest.mark.parametrize(("value", "told"), [(3.44, "3.4 s"), (61, "1:01"), (3723, "1:02:03")])
def test_seconds_as_a_clock_has_them(value, told):
    assert identity_facts.seconds(value) == told


def test_inputs_are_named_by_the_stage_that_made_them(run):
    told = read_run(run(steps=1))
    one = told.stages[0]
    file = {"path": "x/step_1", "kind": "checkpoint", "sha256": "f" * 64}
    one.entry["lineage"] = {"outputs": {"checkpoint": file}, "inputs": {}}
    later = replace(one, name="sft", entry={"lineage": {"inputs": {"start": file}}})
    assert identity_facts.made_from(later, [one, later]) == [("start", "zero.checkpoint", "f" * 10)]
    assert identity_facts.outputs(one) == [("checkpoint", "f" * 10)]
