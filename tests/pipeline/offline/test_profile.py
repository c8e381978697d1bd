"""The lower bound of an update's time, and the parts of a step in order."""

from itertools import count

import pytest
import torch

from veriloop.pipeline.offline import profile
from veriloop.pipeline.offline.profile import WIDTH, bars, waterfall

ROWS = [
    {"step": 1, "reward": 1.0, "step_time": 8.0, "time/sync": 1.0, "time/sample": 2.0,
     "time/update": 4.0, "time/update/forward": 1.0, "time/update/backward": 2.0,
     "time/record": 1.0},
    {"step": 2, "reward": 2.0, "step_time": 12.0, "time/sync": 1.0, "time/sample": 4.0,
     "time/update": 6.0, "time/update/forward": 3.0, "time/update/backward": 2.0,
     "time/record": 1.0},
]  # fmt: skip


def test_operations_are_six_for_what_goes_both_ways_and_two_for_what_goes_forward():
    assert profile.matmul_operations(10, 3) == 180
    assert profile.matmul_operations(10, 3, 4) == 180 + 80


class Model(torch.nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 4)
        self.layer, self.head = torch.nn.Linear(4, 5), torch.nn.Linear(5, 100)
        self.layer.weight.requires_grad_(not frozen)

    def get_output_embeddings(self):
        return self.head


@pytest.mark.parametrize(("frozen", "passes"), [(False, 6), (True, 4)])
def test_products_of_an_update_are_those_of_linear_layers_and_the_head_sees_no_prompts(
    frozen, passes
):
    trained = profile.Positions(prompts=3, answers=7).times(2)
    scored = profile.Positions(prompts=1, answers=2)
    operations = profile.update_operations(Model(frozen), trained, scored)
    assert operations == 20 * (passes * 20 + 2 * 3) + 500 * (6 * 14 + 2 * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_speed_is_that_of_every_product_of_every_layer(dtype):
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Linear(8, 16), torch.nn.Linear(4, 2)
    )
    ticks = count()
    speed = profile.matmul_speed(model, dtype, repeats=1, rows=10, now=lambda: next(ticks))
    assert speed.seconds == 9  # three products of three layers, a second each by the faster way
    assert speed.flops == pytest.approx(3 * 2 * 10 * (8 * 16 * 2 + 4 * 2) / 9)


def test_the_faster_of_two_ways_counts(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16))
    plain, clock = profile.linear_forward, [0.0]

    def slow(x, w):
        clock[0] += 5.0
        return plain(x, w)

    def now():
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr(profile, "linear_forward", slow)
    speed = profile.matmul_speed(model, torch.float32, repeats=1, rows=4, now=now)
    assert speed.seconds == 3.0  # a second each, by the other way where this one takes 6


def test_parts_follow_each_other_and_hold_their_own():
    parts = [(b.name, b.depth, b.begins, b.seconds) for b in bars(ROWS)]
    assert parts == [
        ("sample", 0, 0.0, 3.0),
        ("update", 0, 3.0, 5.0),
        ("forward", 1, 3.0, 2.0),
        ("backward", 1, 5.0, 2.0),
        ("rest", 1, 7.0, 1.0),
        ("sync", 0, 8.0, 1.0),
        ("record", 0, 9.0, 1.0),
    ]


def test_what_some_steps_lack_counts_as_none_and_what_went_beside_begins_with_the_step():
    rows = [{"time/update": 2.0, "time/beside/sample": 3.0, "time/beside/verify": 1.0},
            {"time/update": 2.0}]  # fmt: skip
    parts = [(b.name, b.begins, b.seconds) for b in bars(rows)]
    assert parts == [
        ("update", 0.0, 2.0),
        ("overlapping: sample", 0.0, 1.5),
        ("overlapping: verify", 1.5, 0.5),
    ]


def test_a_bar_is_as_long_as_its_share_and_begins_where_its_part_does():
    lines = waterfall(bars(ROWS), 10.0).splitlines()
    update = next(line for line in lines if line.startswith("update"))
    assert "5.000" in update and "50.0%" in update
    drawn = update.partition("%  ")[2]
    assert drawn == " " * (3 * WIDTH // 10) + "█" * (WIDTH // 2)
    assert lines[3].startswith("  forward")


@pytest.mark.parametrize("rows", [[], [{"step": 1.0, "reward": 2.0}]])
def test_rows_without_times_are_refused(rows):
    with pytest.raises(ValueError, match="hold no time"):
        bars(rows)
