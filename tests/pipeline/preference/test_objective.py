"""The loss that was named, from log-probs alone, against its equation one pair at a time."""

from math import exp, log

import pytest
import torch

from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.objective import (
    StepTotals,
    imbalance,
    lengths,
    per_token,
    share,
    sum_segments,
    weights,
)

CPU = torch.device("cpu")
FIXED = PreferenceLossConfig(name="kto", desirable_weight=1.3, undesirable_weight=0.8)
STEP = 7  # examples of the whole step, more than any test has


@pytest.fixture
def segmented(pairs):
    """Examples whose answers have one, two and three segments."""
    return [e for n in (1, 2, 3) for e in pairs(2, seed=n, segments=n)]


def scored(examples, seed):
    """Log-probs of all segments that a model might have, and those of each answer's."""
    counts = [max(a.segments) + 1 for e in examples for a in e.answers]
    segments_S = -3 * torch.rand(sum(counts), generator=torch.Generator().manual_seed(seed))
    return sum_segments(segments_S, examples), [p.tolist() for p in segments_S.split(counts)]


def log_sigmoid(x):
    return -log(1 + exp(-x))


def smoothed(margin, chance=0.1):
    return -(1 - chance) * log_sigmoid(margin) - chance * log_sigmoid(-margin)


def log_odds(logp):
    return logp - log(1 - exp(logp))


PAIRED = {  # of log(pi / ref) of both answers, and their lengths
    "dpo": ({"beta": 0.3, "label_smoothing": 0.1}, lambda c, r, n, m: smoothed(0.3 * (c - r))),
    "dpo_likelihood": (
        {"beta": 0.3, "likelihood": 0.7},
        lambda c, r, n, m: smoothed(0.3 * (c - r), 0.0),
    ),
    "ipo": ({"tau": 0.2}, lambda c, r, n, m: (c - r - 2.5) ** 2),
    "ipo_mean": ({"tau": 0.2, "length": "mean"}, lambda c, r, n, m: (c / n - r / m - 2.5) ** 2),
}
FREE = {  # of log pi
    "cpo": (
        {"beta": 0.3, "cloning": 0.7, "label_smoothing": 0.1},
        lambda c, r, n, m: smoothed(0.3 * (c - r)) - 0.7 * c,
    ),
    "simpo": (
        {"beta": 2.0, "gamma": 0.4},
        lambda c, r, n, m: -log_sigmoid(2 * (c / n - r / m) - 0.4),
    ),
    "orpo": (
        {"odds_weight": 0.3},
        lambda c, r, n, m: -c / n - 0.3 * log_sigmoid(log_odds(c / n) - log_odds(r / m)),
    ),
}


@pytest.mark.parametrize("name", [*PAIRED, *FREE])
def test_the_share_of_a_pair_is_its_loss_over_the_pairs_of_the_step(segmented, name):
    settings, equation = (PAIRED | FREE)[name]
    policy, own = scored(segmented, 0)
    reference, theirs = scored(segmented, 1)
    if name in FREE:
        reference, theirs = None, [[0.0]] * len(own)
    ratios = [sum(mine) - sum(other) for mine, other in zip(own, theirs, strict=True)]
    expected = sum(
        equation(ratios[2 * p], ratios[2 * p + 1], *(len(a.completion) for a in e.answers))
        for p, e in enumerate(segmented)
    )
    likely = sum(sum(own[2 * p]) / len(e.answers[0].completion) for p, e in enumerate(segmented))
    expected -= settings.get("likelihood", 0.0) * likely
    config = PreferenceLossConfig(name=name.partition("_")[0], **settings)
    loss = share(policy, reference, segmented, config, StepTotals(examples=STEP))
    assert loss.item() == pytest.approx(expected / STEP, rel=1e-5)


def test_each_match_of_two_d_dpo_reads_its_own_two_segments(segmented):
    (policy, own), (reference, theirs) = scored(segmented, 0), scored(segmented, 1)
    expected = 0.0
    for p, example in enumerate(segmented):
        for match in example.matches:
            good, bad = (
                score * (own[2 * p + side][k] - theirs[2 * p + side][k])
                for side, (k, score) in enumerate(
                    ((match.chosen, match.chosen_score), (match.rejected, match.rejected_score))
                )
            )
            expected -= log_sigmoid(0.3 * (good - bad))
    config = PreferenceLossConfig(name="two_d_dpo", beta=0.3)
    loss = share(policy, reference, segmented, config, StepTotals(examples=STEP))
    assert loss.item() == pytest.approx(expected / STEP, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "liked", "disliked", "point"),
    [({}, 1, 1, 0), ({"weights": (1.3, 0.8), "reference_point": 0.4}, 1.3, 0.8, 0.4)],
)
def test_kto_weighs_both_labels_alike_around_0_unless_told(
    labelled_answers, settings, liked, disliked, point
):
    examples = labelled_answers(5)
    assert len({e.label for e in examples}) == 2
    (policy, own), (reference, theirs) = scored(examples, 0), scored(examples, 1)
    expected = 0.0
    for p, example in enumerate(examples):
        gain = 0.3 * (sum(own[2 * p]) - sum(theirs[2 * p]) - point)
        weight, gain = (liked, gain) if example.label else (disliked, -gain)
        expected += weight * (1 - exp(log_sigmoid(gain)))
    config = PreferenceLossConfig(name="kto", beta=0.3)
    loss = share(policy, reference, examples, config, StepTotals(examples=STEP, **settings))
    assert loss.item() == pytest.approx(expected / STEP, rel=1e-5)


def test_log_probs_of_segments_are_summed_and_shared_out_by_answers(segmented):
    sums, own = scored(segmented, 0)
    assert sums.first_P.tolist() == pytest.approx([sum(parts) for parts in own[0::2]])
    assert sums.second_P.tolist() == pytest.approx([sum(parts) for parts in own[1::2]])
    assert sums.segments_S.tolist() == [x for parts in own for x in parts]
    counts = [[len(e.answers[side].completion) for e in segmented] for side in (0, 1)]
    assert [n.tolist() for n in lengths(segmented, CPU)] == counts
    means = [
        [sum(parts) / n for parts, n in zip(own[side::2], counts[side], strict=True)]
        for side in (0, 1)
    ]
    assert [m.tolist() for m in per_token(sums, segmented)] == [pytest.approx(m) for m in means]


def test_weights_are_the_recipes_or_balance_the_data(labelled_answers):
    examples = labelled_answers(9)
    liked = sum(e.label for e in examples)
    assert weights(examples, FIXED) == (1.3, 0.8)
    assert weights(examples, PreferenceLossConfig(name="dpo")) == (1.0, 1.0)
    liked_only = [e for e in labelled_answers(20) if e.label][:3]
    with pytest.raises(RecipeError, match=r"3 desirable and 0 undesirable .* set both weights"):
        weights(liked_only, PreferenceLossConfig(name="kto"))
    own = weights(examples, PreferenceLossConfig(name="kto"))
    assert own[0] * liked == pytest.approx(own[1] * (9 - liked)) and min(own) == 1.0


@pytest.mark.parametrize(
    ("liked", "disliked", "balanced"),
    [(1.0, 1.0, False), (2.0, 1.0, True), (3.0, 1.0, True), (3.1, 1.0, False), (1.9, 1.0, False)],
)
def test_weights_that_do_not_balance_the_answers_are_warned_of(
    labelled_answers, liked, disliked, balanced
):
    """Of two desirable and four undesirable answers: 2 : 1 balances them, 3 : 1 is the end."""
    answers = labelled_answers(20)
    examples = [*[e for e in answers if e.label][:2], *[e for e in answers if not e.label][:4]]
    loss = PreferenceLossConfig(name="kto", desirable_weight=liked, undesirable_weight=disliked)
    warning = imbalance(examples, loss)
    assert bool(warning) is not balanced
    if warning:
        assert f"{liked:g} * 2 / (1 * 4) = {liked / 2:.3g} is outside [1, 1.5]" in warning


def test_only_weights_of_kto_that_were_given_can_be_out_of_balance(labelled_answers):
    examples = labelled_answers(9)
    assert imbalance(examples, PreferenceLossConfig(name="kto")) == ""
    assert imbalance(examples, PreferenceLossConfig(name="dpo")) == ""
    assert imbalance([], FIXED) == ""  # of a round whose answers could not be told apart
    liked_only = [e for e in labelled_answers(20) if e.label][:3]
    assert "= inf is outside" in imbalance(liked_only, FIXED)
