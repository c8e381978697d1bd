"""Tables of responses for trackers: bounded, from many groups, and only text that can be stored."""

from dataclasses import replace
from itertools import pairwise

from tests.rollouts import PLAIN, graded
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.runs.trackers.completions import ROWS, TEXT, completion_table
from veriloop.pipeline.runs.trackers.mirror import Mirror
from veriloop.verifiers.verdict import Verdict


def test_a_row_has_the_texts_the_reward_and_every_verifiers_score():
    verdicts = {"accuracy": Verdict(score=1.0), "format": Verdict(score=0.5)}
    one = graded(said="<answer>1</answer>", verdicts=verdicts, reward=1.5)
    table = completion_table(7, [one])
    assert table.columns == (
        "step", "problem", "prompt", "completion", "finish", "reward", "accuracy", "format",
    )  # fmt: skip
    assert table.rows == [[7, "p/0", "?", "<answer>1</answer>", "stop", 1.5, 1.0, 0.5]]


def test_a_verifier_that_failed_or_did_not_judge_leaves_a_gap():
    failed = graded(reward=None, verdicts={"accuracy": Verdict(score=None, status="error")})
    other = graded(verdicts={"format": Verdict(score=1.0)})
    table = completion_table(1, [failed, other])
    assert [row[-3:] for row in table.rows] == [[None, None, None], [1.0, None, 1.0]]


def test_many_responses_are_sampled_evenly():
    step = [graded(said=str(i)) for i in range(10 * ROWS + 3)]
    texts = [int(row[3]) for row in completion_table(1, step).rows]
    gaps = {b - a for a, b in pairwise(texts)}
    assert len(texts) == ROWS and texts[0] == 0 and gaps == {10, 11}


def test_long_and_broken_texts_are_clipped_and_can_be_stored():
    problem = replace(PLAIN, prompt="p" * 9000)
    table = completion_table(1, [graded(said="half \ud83d", problem=problem)])
    [[_, _, prompt, text, *_]] = table.rows
    assert len(prompt) == TEXT and prompt.endswith("p…")
    assert text.encode() == b"half \\ud83d"


def test_a_record_gives_its_mirrors_a_table_of_the_steps_that_have_samples(tmp_path, keeping):
    tracker = keeping()
    with StageRecord(tmp_path, tensorboard=False, mirrors=[Mirror("a", lambda: tracker)]) as record:
        record.write_metrics(1, {"loss": 1.0}, [graded(said="x")])
        record.write_metrics(2, {"loss": 2.0})
    assert tracker.rows == [(1, {"loss": 1.0}), (2, {"loss": 2.0})]
    assert [*tracker.tables] == [1] and tracker.tables[1].rows[0][3] == "x"
