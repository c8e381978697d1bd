"""Rows become examples: pairs of rankings, labels of pairs, mismatched answers, shares by gap."""

from dataclasses import replace

import pytest

from veriloop.data import arithmetic_preferences
from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Labelled, Pair, Ranked, Segment, parse_rows
from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.examples import (
    Match,
    encode_labelled,
    encode_pairs,
    fits,
    mismatched,
    shuffled,
    split_by_gap,
    to_labelled,
    to_pairs,
    unpair,
    within_limits,
)

DPO, SEGMENTED = PreferenceLossConfig(), PreferenceLossConfig(name="two_d_dpo")
RANKED = Ranked(prompt="p", answers=("best", "good", "bad"))


def test_a_ranking_pairs_its_best_answer_with_each_other_one():
    assert to_pairs([RANKED]) == [
        Pair(prompt="p", chosen="best", rejected="good", gap=1.0),
        Pair(prompt="p", chosen="best", rejected="bad", gap=2.0),
    ]


def test_pairs_are_pairs_and_single_labels_are_not():
    pair = Pair(prompt="p", chosen="a", rejected="b")
    assert to_pairs([pair]) == [pair]
    with pytest.raises(RecipeError, match="which only the loss kto reads"):
        to_pairs([Labelled(prompt="p", completion="a", label=True)])


def test_a_pair_is_a_liked_and_a_disliked_answer():
    pair = Pair(prompt="p", chosen="a", rejected="b")
    both = [
        Labelled(prompt="p", completion="a", label=True),
        Labelled(prompt="p", completion="b", label=False),
    ]
    assert to_labelled([pair]) == to_labelled(both) == both


def test_encoded_pairs_keep_their_gap_and_name_the_one_that_fails(tokenizer):
    good = Pair(prompt="p", chosen="a", rejected="b", gap=2.0)
    (example,) = encode_pairs([good], tokenizer, (2,), DPO)
    assert example.gap == 2.0 and example.matches == () and example.label
    assert example.answers == tuple(encode("p", text, tokenizer, (2,)) for text in "ab")
    bad = Pair(prompt="p", chosen="a<eos>b", rejected="b")
    with pytest.raises(RecipeError, match=r"pair 2: .*end-of-sequence id"):
        encode_pairs([good, bad], tokenizer, (2,), DPO)
    with pytest.raises(RecipeError, match=r"answer 1: .*end-of-sequence id"):
        encode_labelled(to_labelled([bad]), tokenizer, (2,), (99, 99))


def test_what_cannot_be_encoded_is_named_by_its_place_in_the_file(tokenizer):
    rows = [{"prompt": "p", "chosen": "a", "rejected": "b"}] * 2
    rows.append({"prompt": "p", "chosen": "a<eos>b", "rejected": "b"})
    _, _, last = parse_rows(rows, "pairs.jsonl, line")
    with pytest.raises(RecipeError, match=r"^pairs\.jsonl, line 3: .*end-of-sequence id"):
        encode_pairs([last], tokenizer, (2,), DPO)
    with pytest.raises(RecipeError, match=r"^pairs\.jsonl, line 3: .*end-of-sequence id"):
        encode_labelled(to_labelled([last]), tokenizer, (2,), (99, 99))
    ranked = parse_rows([{"prompt": "p", "ranked": ["a", "b<eos>c"]}], "pairs.jsonl, line")
    with pytest.raises(RecipeError, match=r"^pairs\.jsonl, line 1: .*end-of-sequence id"):
        encode_pairs(to_pairs(ranked), tokenizer, (2,), DPO)


def test_a_labelled_answer_is_measured_by_its_own_length(tokenizer):
    """Not by that of the answer to another prompt that it is compared with."""
    texts = ["a", "a " * 40, "b", "b " * 40, "c"]
    rows = [Labelled(prompt=str(i), completion=text, label=i % 2 == 0)
            for i, text in enumerate(texts)]  # fmt: skip
    examples, dropped = encode_labelled(rows, tokenizer, (2,), (8, 8))
    assert dropped == 2 and [example.label for example in examples] == [True, True, True]
    own = [encode(str(i), texts[i], tokenizer, (2,)) for i in (0, 2, 4)]
    assert [example.answers[0] for example in examples] == own
    assert [e.answers[1].completion for e in examples] == [
        one.completion for one in (own[1], own[2], own[0])
    ]


def segments(*scores):
    return tuple(Segment(text=f"{i}.", scores=s) for i, s in enumerate(scores))


def scored(chosen, rejected, **changes):
    pair = Pair(
        prompt="p",
        chosen="".join(s.text for s in chosen),
        rejected="".join(s.text for s in rejected),
        chosen_segments=chosen,
        rejected_segments=rejected,
    )
    return pair, SEGMENTED.model_copy(update=changes)


def test_segments_are_matched_by_their_weighted_scores(tokenizer):
    pair, loss = scored(
        segments((4.0, 0.0), (4.0, 4.0)),
        segments((2.0, 2.0)),
        score_scale=4.0,
        aspects=(0.75, 0.25),
    )
    (example,) = encode_pairs([pair], tokenizer, (2,), loss)
    assert example.matches == (Match(chosen=1, rejected=0, chosen_score=1.0, rejected_score=0.5),)
    assert set(example.answers[0].segments) == {0, 1}
    (even,) = encode_pairs([pair], tokenizer, (2,), loss.model_copy(update={"aspects": ()}))
    assert even.matches == example.matches
    (plain,) = encode_pairs([pair], tokenizer, (2,), DPO)
    assert plain.matches == () and set(plain.answers[0].segments) == {0}


def test_scores_of_segments_are_those_of_the_row_to_the_last_digit(tokenizer):
    for aspects in ((1.0,), ()):
        pair, loss = scored(segments((0.3,)), segments((0.1,)), aspects=aspects)
        (example,) = encode_pairs([pair], tokenizer, (2,), loss)
        (match,) = example.matches
        assert (match.chosen_score, match.rejected_score) == (0.3, 0.1)


def test_segments_that_cannot_be_scored_are_refused(tokenizer):
    for changes, message in (
        ({}, r"must lie in \[0, 1\]"),
        ({"score_scale": 4.0, "aspects": (1.0,)}, "2 scores a segment, loss.aspects has 1 weights"),
    ):
        pair, loss = scored(segments((4.0, 0.0)), segments((2.0, 2.0)), **changes)
        with pytest.raises(RecipeError, match=f"pair 1: .*{message}"):
            encode_pairs([pair], tokenizer, (2,), loss)
    with pytest.raises(RecipeError, match="pair 1: two_d_dpo needs chosen_segments"):
        encode_pairs([Pair(prompt="p", chosen="a", rejected="b")], tokenizer, (2,), SEGMENTED)


def ids(prompt, completion):
    return EncodedAnswer(prompt=(prompt,), completion=(completion,), segments=(0,))


def test_the_mismatched_answer_is_the_next_one_to_another_prompt():
    answers = [ids(1, 10), ids(1, 11), ids(2, 12), ids(3, 13)]
    examples = mismatched(answers, [True, False, True, False])
    assert [e.answers[0] for e in examples] == answers
    assert [e.answers[1] for e in examples] == [ids(1, 12), ids(1, 12), ids(2, 13), ids(3, 10)]
    assert [e.label for e in examples] == [True, False, True, False]
    with pytest.raises(RecipeError, match="all 2 answers are to one prompt"):
        mismatched(answers[:2], [True, False])


def test_unpaired_the_chosen_answer_is_desirable_and_the_rejected_one_is_not(pairs):
    both = pairs(3)
    examples = unpair(both)
    assert [e.answers[0] for e in examples] == [a for pair in both for a in pair.answers]
    assert [e.label for e in examples] == [True, False] * 3
    assert all(e.answers[1].prompt == e.answers[0].prompt for e in examples)


def test_examples_over_the_limits_are_left_out_and_counted(pairs):
    examples = pairs(20)
    kept, dropped = within_limits(examples, 4, 4)
    assert kept and dropped and len(kept) + dropped == 20
    for example in examples:
        fits = all(len(a.prompt) <= 4 and len(a.completion) <= 4 for a in example.answers)
        assert (example in kept) is fits


def test_an_answer_may_have_as_many_tokens_as_the_limits():
    assert fits(ids(1, 10), 1, 1)
    assert not fits(ids(1, 10), 0, 1) and not fits(ids(1, 10), 1, 0)


def test_the_largest_gaps_come_first_in_nearly_equal_shares(pairs):
    shares = split_by_gap(pairs(10), 3)
    gaps = [[e.gap for e in share] for share in shares]
    assert [len(g) for g in gaps] == [3, 3, 4]
    flat = [gap for share in gaps for gap in share]
    assert flat == sorted(flat, reverse=True) and len(set(flat)) == 10


def test_equal_gaps_keep_their_order_and_the_smallest_is_below_none_but_negative_ones(pairs):
    gaps = (0.0, 0.5, -1.0, 0.5, 0.0)
    examples = [replace(e, gap=gap) for e, gap in zip(pairs(5), gaps, strict=True)]
    (ordered,) = split_by_gap(examples, 1)
    assert ordered == [examples[i] for i in (1, 3, 0, 4, 2)]


def test_rankings_of_four_make_the_three_rounds_of_the_paper(tokenizer):
    rows = parse_rows(arithmetic_preferences.rows("ranked", 0, 5), "x")
    shares = split_by_gap(encode_pairs(to_pairs(rows), tokenizer, (2,), DPO), 3)
    assert [{e.gap for e in share} for share in shares] == [{3.0}, {2.0}, {1.0}]


def test_a_curriculum_needs_gaps_and_enough_pairs(pairs, tokenizer):
    with pytest.raises(RecipeError, match="the data need score_chosen"):
        split_by_gap(
            encode_pairs([Pair(prompt="p", chosen="a", rejected="b")], tokenizer, (2,), DPO), 1
        )
    with pytest.raises(RecipeError, match=r"rounds=3 is more than the 2 pairs"):
        split_by_gap(pairs(2), 3)


def test_an_order_is_the_same_for_the_same_purpose(pairs):
    examples = pairs(9)
    assert shuffled(examples, "a") == shuffled(examples, "a") != shuffled(examples, "b")
    assert sorted(shuffled(examples, "a")) == list(range(9))
