"""Verifiers of steps are asked once for each different response of a group."""

from collections import Counter

from veriloop.pipeline.rollouts.step_scores import with_step_scores


def test_equal_responses_of_a_group_are_scored_once_and_all_keep_their_order(graded):
    asked = Counter()

    def scores(problem, response):
        asked[response] += 1
        return [(len(response), float(len(response)))]

    texts = [("1/0", "aa"), ("1/0", "b"), ("1/0", "aa"), ("1/1", "aa")]
    scored = with_step_scores([graded(group=group, said=text) for group, text in texts], scores)
    assert [g.steps for g in scored] == [((2, 2.0),), ((1, 1.0),), ((2, 2.0),), ((2, 2.0),)]
    assert [(g.rollout.group, g.rollout.response) for g in scored] == texts
    assert asked == {"aa": 2, "b": 1}  # once in each group


def test_a_response_without_a_reward_is_not_asked_about(graded):
    def scores(problem, response):
        raise AssertionError("not to be called")

    (g,) = with_step_scores([graded(reward=None)], scores)
    assert g.steps is None


def test_a_response_whose_steps_cannot_be_scored_has_no_scores(graded, caplog):
    def scores(problem, response):
        if response == "bad":
            raise OSError("no endpoint")
        return []

    bad, good = with_step_scores([graded(said="bad"), graded(said="good")], scores)
    assert bad.steps is None and good.steps == ()
    assert "no endpoint" in caplog.text


def test_a_step_score_that_is_no_number_is_no_score(graded, caplog):
    (g,) = with_step_scores([graded(said="a")], lambda problem, response: [(1, float("nan"))])
    assert g.steps is None
    assert "a score is not finite: [nan]" in caplog.text
