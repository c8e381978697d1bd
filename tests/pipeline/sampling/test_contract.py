"""Every engine keeps the same promises; the trainer's own scores are the judge."""

import pytest
import torch

from veriloop.pipeline.config.sections import RolloutConfig, SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import CPU
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, score
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling, Unfinished
from veriloop.pipeline.sampling.static_engine import StaticSampler

ENDS = tuple(range(200, 260))  # many, so that an untrained model meets them
PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63, 64, 65, 66), (1, 40, 41, 42)]
ENGINES = [
    "torch",
    "static",
    pytest.param("torch apart", marks=pytest.mark.slow),
    pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow]),
    pytest.param("vllm apart", marks=[pytest.mark.vllm, pytest.mark.slow]),
]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, tiny_checkpoint):
    name, _, place = request.param.partition(" ")
    if name == "vllm":
        pytest.importorskip("vllm")
    folder = tiny_checkpoint(ends=ENDS)
    if name == "static":  # what runs on a GPU, without its graphs
        sampler = StaticSampler(str(folder), device=CPU, cache_gib=0.1, max_batch=64)
    else:
        sampler = open_sampler(
            SamplerConfig(engine=name, cache_gib=0.1, max_batch=64, apart=place == "apart"),
            str(folder),
            max_length=96,
            say=print,
        )
    yield sampler, load_policy(folder), load_tokenizer(folder)
    sampler.close()


def sampling(**changes):
    return Sampling(**{"per_prompt": 4, "temperature": 1.0, "max_tokens": 24, "seed": 5, **changes})


@torch.no_grad()
def scored(policy, prompt, completion, temperature):
    packed = lay_out(
        [(*prompt, *completion.ids)], best_fit([len(prompt) + len(completion.ids) - 1], 96)
    )
    mask = packed.positions_RT + 1 >= len(prompt)
    return score(
        policy, packed.ids_RT, packed.positions_RT, packed.targets_RT, mask,
        temperature=temperature, chunk=64,
    )[0]  # fmt: skip


@pytest.mark.slow
def test_each_prompt_gets_its_group_in_order(engine):
    sampler, policy, _ = engine
    groups = sampler.sample(PROMPTS, sampling())
    assert [len(g) for g in groups] == [4] * 4
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for one in group:  # the log-probs only fit the prompt they were sampled after
            assert torch.tensor(one.logp).sub(scored(policy, prompt, one, 1.0)).abs().max() < 1e-4


def test_each_prompt_is_told_of_once_when_its_own_answers_are_complete(engine):
    sampler, _, _ = engine
    heard = {}

    def told(place, completions):
        assert place not in heard
        heard[place] = list(completions)

    groups = sampler.sample(PROMPTS, sampling(max_tokens=60), told)
    assert heard == dict(enumerate(groups))
    longest = [max(len(c.ids) for c in group) for group in groups]
    if len(set(longest)) == len(longest):  # the engine goes on while others are told
        assert list(heard) == sorted(heard, key=longest.__getitem__)
    assert max(longest) > min(longest)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_log_probs_are_those_after_the_temperature(engine, temperature):
    sampler, policy, _ = engine
    unscaled = [0.0]
    for prompt, group in zip(
        PROMPTS, sampler.sample(PROMPTS, sampling(temperature=temperature)), strict=True
    ):
        for one in group:
            right = scored(policy, prompt, one, temperature)
            torch.testing.assert_close(torch.tensor(one.logp), right, atol=1e-4, rtol=0)
            unscaled.append((scored(policy, prompt, one, 1.0) - right).abs().max().item())
    assert (max(unscaled) > 0.1) == (temperature != 1.0)


def test_every_end_id_ends_a_response_and_stays_in_it(engine):
    sampler, _, tokenizer = engine
    ends = {tokenizer.eos_token_id, *ENDS}
    found = [c for g in sampler.sample(PROMPTS, sampling(per_prompt=16)) for c in g]
    stopped = [c for c in found if c.finish == "stop"]
    assert len({c.ids[-1] for c in stopped}) > 5
    for one in found:
        assert len(one.ids) == len(one.logp) <= 24
        assert not ends & set(one.ids[:-1])
        assert (one.finish == "stop") == (one.ids[-1] in ends)
        assert one.finish == "stop" or len(one.ids) == 24


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(engine):
    sampler, _, _ = engine
    first = sampler.sample(PROMPTS, sampling())
    assert sampler.sample(PROMPTS, sampling()) == first
    assert sampler.sample(PROMPTS, sampling(seed=6)) != first


def test_a_prompt_asked_twice_gets_different_samples(engine):
    sampler, _, _ = engine
    groups = sampler.sample(PROMPTS, sampling())
    assert PROMPTS[0] == PROMPTS[3] and groups[0] != groups[3]
    assert len({c.ids for c in groups[0]}) == 4


def test_greedy_takes_the_likeliest_token(engine):
    sampler, policy, _ = engine
    prompt = PROMPTS[2]
    (one,) = sampler.sample([prompt], sampling(temperature=0.0, per_prompt=1))[0]
    with torch.no_grad():
        logits = policy(torch.tensor([[*prompt, *one.ids]])).logits[0]
    assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == list(one.ids)


@pytest.mark.parametrize("end", [None, -1], ids=["at the end of a token", "inside a token"])
def test_a_stop_string_ends_with_the_token_that_completes_it(engine, end):
    sampler, _, tokenizer = engine
    free = sampler.sample(PROMPTS[:1], sampling(temperature=0.0, per_prompt=1, max_tokens=12))[0][0]
    texts = [tokenizer.decode(list(free.ids[: n + 1])) for n in range(len(free.ids))]
    at = next(n for n in range(2, len(texts)) if len(texts[n]) > len(texts[n - 1]) + 1)
    stop = texts[at][len(texts[at - 1]) : end]
    first = next(n for n, text in enumerate(texts) if stop in text)
    cut = sampler.sample(
        PROMPTS[:1], sampling(temperature=0.0, per_prompt=1, max_tokens=12, stop=(stop,))
    )[0][0]
    assert (cut.ids, cut.finish) == (free.ids[: first + 1], "stop")


@pytest.mark.slow
def test_samples_follow_the_model_s_distribution(engine):
    sampler, policy, _ = engine
    prompt, n = PROMPTS[0], 4000
    groups = sampler.sample([prompt] * (n // 40), sampling(per_prompt=40, max_tokens=1))
    counts = torch.bincount(torch.tensor([c.ids[0] for g in groups for c in g]), minlength=400)
    with torch.no_grad():
        p = policy(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    likely = p > 0.004
    z = (counts[likely] - n * p[likely]) / (n * p[likely] * (1 - p[likely])).sqrt()
    assert likely.sum() > 5 and z.abs().max() < 4.5
    assert abs(counts[~likely].sum().item() / n - p[~likely].sum().item()) < 0.03


@pytest.mark.slow
def test_top_p_keeps_the_likeliest_tokens_in_proportion_and_no_other(engine):
    sampler, policy, _ = engine
    prompt, n, top_p = PROMPTS[0], 2000, 0.5
    groups = sampler.sample(
        [prompt] * (n // 40), sampling(per_prompt=40, max_tokens=1, temperature=0.8, top_p=top_p)
    )
    with torch.no_grad():
        p = (policy(torch.tensor([prompt])).logits[0, -1] / 0.8).softmax(-1)
    kept, held = [], 0.0
    for token in p.argsort(descending=True).tolist():
        kept.append(token)
        held += p[token].item()
        if held >= top_p:
            break
    found = [c for g in groups for c in g]
    assert 2 < len(kept) < 100 and {c.ids[0] for c in found} <= set(kept)
    counts = torch.bincount(torch.tensor([c.ids[0] for c in found]), minlength=400)[kept]
    share = p[kept] / held
    z = (counts - n * share) / (n * share * (1 - share)).sqrt()
    assert z[share > 0.01].abs().max() < 4.5
    for one in found[:20]:
        assert one.logp[0] == pytest.approx((p[one.ids[0]] / held).log().item(), abs=1e-3)


@pytest.mark.parametrize("top_p", [0.0, -0.1, 1.1])
def test_a_share_of_probability_that_is_none_is_refused(top_p):
    with pytest.raises(ValueError, match=f"top_p={top_p} must be in"):
        sampling(top_p=top_p)


@pytest.mark.parametrize("temperature", [0.004, 0.0099])
def test_a_temperature_that_vllm_would_raise_is_refused(temperature):
    with pytest.raises(ValueError, match=rf"temperature={temperature} must be 0 .* at least 0\.01"):
        sampling(temperature=temperature)
    with pytest.raises(ValueError, match=r"greater than or equal to 0\.01"):
        RolloutConfig(prompts=1, per_prompt=2, max_tokens=1, temperature=temperature)
    assert sampling(temperature=0.01).temperature == 0.01


def test_a_prompt_that_leaves_no_room_is_refused_by_number(engine):
    sampler, _, _ = engine
    room = 1024 if sampler.name == "torch" else 96
    with pytest.raises(ValueError, match=f"prompt 1 has {room} tokens; with max_tokens=24"):
        sampler.sample([PROMPTS[0], (1,) * room], sampling())


def test_loaded_weights_are_used_at_once_and_nothing_of_the_old_ones_is(engine):
    sampler, policy, _ = engine
    old = {name: p.detach().clone() for name, p in policy.named_parameters()}
    sampler.sample(PROMPTS, sampling())  # fills every cache
    try:
        with torch.no_grad():
            for p in policy.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
        sampler.load_weights(policy.named_parameters(), 3)
        assert sampler.version == 3
        for prompt, group in zip(PROMPTS, sampler.sample(PROMPTS, sampling()), strict=True):
            for one in group:
                right = scored(policy, prompt, one, 1.0)
                torch.testing.assert_close(torch.tensor(one.logp), right, atol=1e-4, rtol=0)
    finally:
        policy.load_state_dict(old, strict=False)
        sampler.load_weights(policy.named_parameters(), 0)


def begun(responses, until):
    """Those of (prompt, completion) that have room, to be continued."""
    return [
        Unfinished(prompt=prompt, ids=one.ids, logp=one.logp, until=until)
        for prompt, one in responses
        if one.finish == "length"
    ]


def moved(policy):
    """The weights of another version."""
    torch.manual_seed(3)
    return [(n, p + 0.05 * torch.randn_like(p)) for n, p in policy.named_parameters()]


@torch.no_grad()
def test_an_answer_goes_on_under_new_weights_and_each_token_has_the_log_prob_of_its_own(engine):
    sampler, policy, _ = engine
    prompts = PROMPTS * 4  # many answers end early
    fresh = [Unfinished(prompt=prompt, ids=(), logp=(), until=3) for prompt in prompts]
    first = sampler.extend(fresh, sampling())
    assert all(len(one.ids) == 3 or one.finish == "stop" for one in first)
    responses = begun(zip(prompts, first, strict=True), 12)
    assert len(responses) > 1, "none is left to go on with"
    old, new = dict(policy.named_parameters()), moved(policy)
    before = {name: weight.clone() for name, weight in old.items()}
    heard = {}
    try:
        sampler.load_weights(iter(new), sampler.version + 1)
        whole = sampler.extend(responses, sampling(seed=6), heard.__setitem__)
        again = sampler.extend(responses, sampling(seed=6))
    finally:
        sampler.load_weights(iter(before.items()), sampler.version - 1)
    assert again == whole == [heard[place] for place in range(len(responses))]
    early = [scored(policy, r.prompt, one, 1.0) for r, one in zip(responses, whole, strict=True)]
    for name, weight in new:
        old[name].copy_(weight)
    late = [scored(policy, r.prompt, one, 1.0) for r, one in zip(responses, whole, strict=True)]
    for name, weight in before.items():
        old[name].copy_(weight)
    for response, one, by_old, by_new in zip(responses, whole, early, late, strict=True):
        assert one.ids[:3] == response.ids and one.logp[:3] == response.logp
        assert len(one.ids) == len(one.logp)
        assert 3 < len(one.ids) <= 12 and (one.finish == "stop" or len(one.ids) == 12)
        logp = torch.tensor(one.logp)
        assert (logp - by_old)[:3].abs().max() < 1e-4 > (logp - by_new)[3:].abs().max()
        assert (by_old - by_new).abs().max() > 1e-2  # or the two could not be told apart


def test_answers_pause_where_each_of_them_is_told_to(engine):
    sampler, _, _ = engine
    untils = [1, 7, 3, 7]
    fresh = [
        Unfinished(prompt=prompt, ids=(), logp=(), until=until)
        for prompt, until in zip(PROMPTS, untils, strict=True)
    ]
    found = sampler.extend(fresh, sampling(temperature=0.0))
    whole = sampler.sample(PROMPTS, sampling(temperature=0.0, per_prompt=1))
    for one, (full,), until in zip(found, whole, untils, strict=True):
        assert one.ids == full.ids[:until]
        assert one.finish == (full.finish if len(full.ids) <= until else "length")
    assert sampler.extend([], sampling()) == []


@pytest.mark.parametrize(("ids", "logp", "until"), [((1, 2), (-1.0,), 9), ((1,), (-1.0,), 1)])
def test_an_answer_that_cannot_go_on_is_refused(ids, logp, until):
    with pytest.raises(ValueError, match="cannot be continued"):
        Unfinished(prompt=(1,), ids=ids, logp=logp, until=until)


def test_an_answer_without_room_to_go_on_is_refused(engine):
    sampler, _, _ = engine
    with pytest.raises(RecipeError, match=r"with max_tokens=100000 it exceeds"):
        sampler.extend(
            [Unfinished(prompt=(1, 40), ids=(5,), logp=(-1.0,), until=100_000)], sampling()
        )
