"""Rollouts hold what came back from the sampler, to the token, and know whom to thank."""

import copy
from types import SimpleNamespace

import pytest

from veriloop.data.arithmetic import problem
from veriloop.pipeline.rollouts.generate import RolloutGenerator, prompt_ids
from veriloop.pipeline.sampling.sampler import Completion, Sampling

SAMPLING = Sampling(per_prompt=2, temperature=0.8, max_tokens=5, seed=3)


class Written:
    """A sampler that returns what a test wrote down."""

    version = 17

    def __init__(self, groups, early=()):
        self.groups, self.asked, self.early = groups, None, early

    def sample(self, prompts, sampling, told):
        self.asked = (prompts, sampling)
        for place in self.early:
            told(place, self.groups[place])
        return self.groups


def done(ids, finish="stop"):
    return Completion(ids=tuple(ids), logp=tuple(-0.1 * i for i in ids), finish=finish)


@pytest.fixture
def scribe(tokenizer):
    return RolloutGenerator(tokenizer, SimpleNamespace(eos_token_id=tokenizer.eos_token_id))


def test_rollouts_follow_the_questions_with_those_of_one_group_together(scribe, tokenizer):
    end = tokenizer.eos_token_id
    asked = [("4/0", problem("rl", 0, 0)), ("4/1", problem("rl", 0, 1))]
    sampler = Written([[done([9, end]), done([10, 11], "length")], [done([12]), done([13, end])]])
    rollouts = scribe.rollouts(sampler, asked, SAMPLING)
    assert [r.group for r in rollouts] == ["4/0", "4/0", "4/1", "4/1"]
    assert [r.problem for r in rollouts] == [asked[0][1]] * 2 + [asked[1][1]] * 2
    assert [r.response_ids for r in rollouts] == [(9, end), (10, 11), (12,), (13, end)]
    assert [r.finish for r in rollouts] == ["stop", "length", "stop", "stop"]
    assert [r.logp for r in rollouts] == [c.logp for group in sampler.groups for c in group]
    assert {(r.temperature, r.policy_version) for r in rollouts} == {(0.8, 17)}


def test_the_sampler_is_asked_with_the_ids_that_are_written_down(scribe, tokenizer):
    asked = [(str(i), problem("rl", 0, i)) for i in range(3)]
    sampler = Written([[done([9])]] * 3)
    rollouts = scribe.rollouts(sampler, asked, SAMPLING)
    prompts, sampling = sampler.asked
    assert prompts == [r.prompt_ids for r in rollouts] and sampling is SAMPLING
    assert prompts == [prompt_ids(p, tokenizer) for _, p in asked]


def test_the_sampled_ids_are_kept_where_encoding_the_text_would_give_others(scribe, tokenizer):
    """A word sampled letter by letter, which the tokenizer writes in fewer tokens."""
    word = " Assistant:"
    letters = [i for c in word for i in tokenizer(c, add_special_tokens=False).input_ids]
    assert len(tokenizer(word, add_special_tokens=False).input_ids) < len(letters)
    sampler = Written([[done(letters), done([9])]])
    one, _ = scribe.rollouts(sampler, [("g", problem("rl", 0, 0))], SAMPLING)
    assert one.response == word and one.response_ids == tuple(letters)
    assert len(one.logp) == len(letters)


def test_the_text_has_the_tags_and_not_the_end(scribe, tokenizer):
    text = "<think>hm</think><answer>7</answer>"
    ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    (rollout, _) = scribe.rollouts(
        Written([[done(ids), done([9])]]), [("g", problem("rl", 0, 0))], SAMPLING
    )
    assert rollout.response == text and rollout.response_ids[-1] == tokenizer.eos_token_id


def test_a_model_with_several_ends_has_each_taken_off(tokenizer):
    settings = SimpleNamespace(eos_token_id=[tokenizer.pad_token_id])
    seven = tokenizer("7", add_special_tokens=False).input_ids
    sampler = Written(
        [[done([*seven, e]) for e in (tokenizer.pad_token_id, tokenizer.eos_token_id)]]
    )
    rollouts = RolloutGenerator(tokenizer, settings).rollouts(
        sampler, [("g", problem("rl", 0, 0))], SAMPLING
    )
    assert [r.response for r in rollouts] == ["7", "7"]


def test_a_sampler_that_forgets_a_prompt_is_noticed(scribe):
    asked = [(str(i), problem("rl", 0, i)) for i in range(2)]
    with pytest.raises(ValueError, match="shorter"):
        scribe.rollouts(Written([[done([9])]]), asked, SAMPLING)


def test_a_group_is_handed_on_as_soon_as_it_is_complete(scribe):
    asked = [(f"1/{i}", problem("rl", 0, i)) for i in range(3)]
    sampler = Written([[done([9])], [done([10])], [done([11])]], early=(2, 0))
    taken = []
    rollouts = scribe.rollouts(sampler, asked, SAMPLING, taken.append)
    assert [group[0].group for group in taken] == ["1/2", "1/0", "1/1"]
    assert [r.group for r in rollouts] == ["1/0", "1/1", "1/2"]
    assert sorted(taken, key=lambda group: group[0].group) == [[r] for r in rollouts]


@pytest.mark.parametrize(
    ("template", "opening", "told"),
    [("chat", "<think>", True), ("chat", "", None), ("r1_zero", "<think>", None)],
)
def test_where_the_chat_template_opens_the_thinking_the_verifiers_know(
    tokenizer, template, opening, told
):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template += opening + ("\n" if opening else "")
    ends = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
    scribe = RolloutGenerator(tokenizer, ends, template, "Think." if template == "chat" else "")
    asked = problem("rl", 0, 0)
    rollout, _ = scribe.rollouts(Written([[done([9]), done([9])]]), [("g", asked)], SAMPLING)
    assert rollout.problem.facts.get("prefilled_think") is told
    assert ("Think." in tokenizer.decode(rollout.prompt_ids)) is (template == "chat")
    assert rollout.problem.prompt == asked.prompt
