"""The engine of the CPU: what it gives to the model, in which batches, and what it leaves out."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.sampling.sampler import Sampling, Unfinished, digests
from veriloop.pipeline.sampling.torch_engine import Decoding, TorchSampler, _nucleus

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61), (1, 40, 41, 42), (1, 70, 71, 72, 73)]


@pytest.fixture
def opened(tiny_checkpoint):
    """Function: an engine, and the ids' shape and largest position of each pass of its model."""

    def build(**settings):
        engine, passes = TorchSampler(str(tiny_checkpoint()), **settings), []
        plain = engine._model

        def model(**given):
            passes.append((tuple(given["input_ids"].shape), int(given["position_ids"].max())))
            return plain(**given)

        model.config, model.named_parameters = plain.config, plain.named_parameters
        engine._model = model
        return engine, passes

    return build


def sampling(**changes):
    values = {"per_prompt": 2, "temperature": 1.0, "max_tokens": 6, "seed": 5}
    return Sampling(**values | changes)


def test_a_new_engine_has_the_weights_of_its_checkpoint_on_the_cpu(opened):
    engine, _ = opened()
    assert (engine.version, engine.pid, engine.dtype) == (0, None, "float32")
    assert not engine.on_gpu


def test_digests_are_of_the_weights_that_are_named_alone(opened):
    engine, _ = opened()
    own = dict(engine._model.named_parameters())
    name = sorted(own)[3]
    found = engine.digests({name: tuple(own[name].shape), "elsewhere": (1,)})
    assert found == digests([(name, own[name])])


@pytest.mark.parametrize(("max_batch", "sizes"), [(9, [8, 2]), (4, [4, 4, 2]), (1, [2] * 5)])
def test_as_many_prompts_are_sampled_at_once_as_rows_fit_and_one_at_least(opened, max_batch, sizes):
    engine, passes = opened(max_batch=max_batch)
    heard = {}
    groups = engine.sample(PROMPTS, sampling(), heard.__setitem__)
    firsts = [shape[0] for shape, _ in passes if shape[1] > 1]
    assert [2 * rows for rows in firsts] == sizes
    assert heard == dict(enumerate(groups)) and [len(group) for group in groups] == [2] * 5


@pytest.mark.parametrize(("max_batch", "sizes"), [(2, [2, 2, 1]), (9, [5])])
def test_answers_that_go_on_are_batched_and_told_of_by_their_number(opened, max_batch, sizes):
    engine, passes = opened(max_batch=max_batch)
    responses = [
        Unfinished(prompt=prompt, ids=(80 + n,), logp=(-1.0,), until=3 + n)
        for n, prompt in enumerate(PROMPTS)
    ]
    heard = {}
    whole = engine.extend(responses, sampling(per_prompt=7), heard.__setitem__)
    assert [shape[0] for shape, _ in passes if shape[1] > 1] == sizes
    assert [heard[n] for n in range(5)] == whole
    for n, one in enumerate(whole):
        assert one.ids[0] == 80 + n and (len(one.ids) == 3 + n or one.finish == "stop")


def test_finished_rows_are_dropped_when_an_eighth_has_finished(opened):
    """Of 16 answers, one ends with each token."""
    engine, passes = opened()
    engine._ends = torch.tensor([-1])  # none ends before its limit
    responses = [Unfinished(prompt=(1, 40 + n), ids=(), logp=(), until=1 + n) for n in range(16)]
    engine.extend(responses, sampling())
    rows = [shape[0] for shape, _ in passes]
    assert rows == [16, 16, 14, 14, 12, 12, 10, 10, 8, 7, 6, 5, 4, 3, 2, 1]


def test_a_row_that_has_finished_stays_within_the_models_positions(opened):
    engine, passes = opened()
    engine._ends, engine._room = torch.tensor([-1]), 12
    long = Unfinished(prompt=(1,) * 10, ids=(), logp=(), until=2)
    short = [Unfinished(prompt=(1, n), ids=(), logp=(), until=10) for n in range(40, 48)]
    engine.extend([long, *short], sampling())
    assert {shape[0] for shape, _ in passes} == {9}
    assert max(position for _, position in passes) == 11


def test_a_model_without_a_limit_of_positions_has_room_for_any_prompt(opened):
    engine, passes = opened()
    engine._room = None
    (group,) = engine.sample([(1,) * 1100], sampling())
    assert len(group) == 2 and max(position for _, position in passes) > 1024


def test_padding_before_a_prompt_takes_the_first_position():
    seen = []

    def model(**given):
        seen.append(given["position_ids"].tolist())
        return SimpleNamespace(logits=torch.zeros(2, 1, 4))

    state = SimpleNamespace(last=9, model=model, cache=None)
    attended_PT = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    Decoding._forward(state, torch.zeros(2, 4, dtype=torch.int64), attended_PT)
    assert seen == [[[0, 0, 0, 1], [0, 1, 2, 3]]]


def test_a_greedy_choice_has_its_log_prob_at_temperature_1_in_single_precision():
    logits_NV = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).bfloat16()
    state = SimpleNamespace(sampling=sampling(temperature=0.0), logits_NV=logits_NV, noise=None)
    token_N, logp_N = Decoding._choose(state)
    assert_close(logp_N, logits_NV.float().log_softmax(-1).amax(-1))
    assert torch.equal(token_N, logits_NV.argmax(-1))


def test_a_share_that_the_likeliest_tokens_reach_exactly_takes_no_more_of_them():
    logp_NV = torch.tensor([[0.25, 0.5, 0.25], [0.125, 0.125, 0.75]]).log()
    assert _nucleus(logp_NV, 1.0) is logp_NV
    kept = _nucleus(logp_NV, 0.5)
    assert torch.isinf(kept).tolist() == [[True, False, True], [True, True, False]]
    assert kept.exp().sum(-1).tolist() == [1.0, 1.0]


def stopped(tokenizer, ids, *stop):
    answers = SimpleNamespace(
        sampling=SimpleNamespace(stop=stop),
        row_N=torch.tensor([0]),
        tokens={0: ids},
        tokenizer=tokenizer,
    )
    return Decoding._stopped(answers).tolist() == [True]


def test_the_longest_of_several_stop_strings_is_found_and_special_tokens_are_text(
    tiny_checkpoint,
):
    tokenizer = load_tokenizer(tiny_checkpoint())
    digits = "".join(random.Random(0).choices("0123456789", k=40))
    ids = tokenizer(f"so {digits}", add_special_tokens=False).input_ids
    assert len(ids) > 20
    assert stopped(tokenizer, ids, "q", digits) and stopped(tokenizer, ids, digits, "q")
    assert not stopped(tokenizer, ids[:-1], "q", digits)
    assert stopped(tokenizer, [*ids, tokenizer.bos_token_id], tokenizer.bos_token)
