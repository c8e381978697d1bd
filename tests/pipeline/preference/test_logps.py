"""Log-probs of answers and segments: packed, they are those of one token after the other."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.preference.logps import pieces, segment_counts, segment_logps


@pytest.mark.parametrize("row", [8, 64])
def test_segments_have_the_log_probs_of_their_tokens(tiny_llama, plain_scores, pairs, row):
    model = tiny_llama()
    answers = [a for e in pairs(4, segments=2) for a in e.answers]
    with torch.no_grad():
        found = segment_logps(model, answers, TrainerConfig(row=row, logits_chunk=5))
        expected = []
        for a in answers:
            logps, _ = plain_scores(model, a.prompt, a.completion)
            here = torch.tensor(a.segments)
            expected += [logps[here == k].sum() for k in range(2)]
    assert segment_counts(answers) == [2] * 8
    assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_pieces_keep_the_order_and_the_limit(pairs):
    examples = pairs(12)
    groups = list(pieces(examples, 40))
    assert [i for group in groups for i in group] == list(range(12)) and len(groups) > 2

    def needed(group):
        answers = [a for i in group for a in examples[i].answers]
        return sum(len(a.prompt) + len(a.completion) - 1 for a in answers)

    assert all(needed(group) <= 40 for group in groups)
    following = [needed([*a, b[0]]) for a, b in pairwise(groups)]
    assert all(size > 40 for size in following)  # none could have been longer
    assert list(pieces(examples[:2], 1)) == [[0], [1]]  # one example always fits
    assert list(pieces([], 40)) == []
