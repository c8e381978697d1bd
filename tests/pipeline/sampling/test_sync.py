"""The proof that the sampler holds the policy's weights: it must pass, and it must fail."""

import re
import weakref
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.sampling import sync as module
from veriloop.pipeline.sampling import vllm_engine
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Completion, SendAgainError, digest_tensor
from veriloop.pipeline.sampling.sync import Fresh, SyncError, WeightSync, batch_tolerance

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63)]
BOTH = [
    "torch",
    pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow]),
]


def opened(engine, folder):
    if engine == "vllm":
        pytest.importorskip("vllm")
    config = SamplerConfig(engine=engine, cache_gib=0.1, max_batch=32)
    return open_sampler(config, str(folder), max_length=96, say=print)


def shake(policy, seed, size=0.05):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * size)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("engine", BOTH)
def test_sampler_and_trainer_agree_after_every_sync(engine, tied, tiny_checkpoint, monkeypatch):
    folder = tiny_checkpoint(tied=tied)
    policy, sampler = load_policy(folder), opened(engine, folder)
    try:
        sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
        first = sync(0, PROMPTS)
        assert first.moved is None and first.tokens > len(PROMPTS)
        for version in range(1, 4):
            shake(policy, version)
            report = sync(version, PROMPTS)
            assert 0 < report.mean <= report.max <= 1e-4
            assert report.moved is not None and report.moved > 1e-3  # a stale one would show
        if engine == "vllm" and tied:
            monkeypatch.setattr(vllm_engine, "_repack_head", lambda worker: None)
            shake(policy, 9)
            lost = r"1 of \d+ tensors \(model.embed_tokens.weight\) differ"
            with pytest.raises(SyncError, match=lost):
                sync(9, PROMPTS)  # the tied head keeps its packed copy, and nothing else complains
    finally:
        sampler.close()


@pytest.mark.slow
def test_a_sampler_that_was_not_given_the_weights_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    shake(policy, 1)
    sampler.version = 1  # claims to be fresh
    with pytest.raises(SyncError, match="after 1 optimizer steps the torch sampler"):
        sync.prove(1, PROMPTS)


def test_one_token_out_of_many_is_enough(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sample = sampler.sample

    def off_by_a_little(prompts, how):
        [first], *more = sample(prompts, how)  # one a prompt is enough
        return [[replace(first, logp=(first.logp[0] + 3e-4, *first.logp[1:]))], *more]

    sampler.sample = off_by_a_little
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError) as stopped:
        sync.prove(0, PROMPTS)
    told = r"max (\S+), mean (\d\.\d+e-0[56]) nats, allowed 1e-04"
    [(most, mean)] = re.findall(told, str(stopped.value))
    assert float(most) == pytest.approx(3e-4, abs=1e-5)  # the two kernels differ by up to 1e-6
    assert float(mean) < float(most) / 10


def test_a_difference_of_just_the_tolerance_is_allowed(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    seen = WeightSync(policy, sampler, temperature=1.0, tolerance=1.0)(0, PROMPTS).max
    assert WeightSync(policy, sampler, temperature=1.0, tolerance=seen)(0, PROMPTS).max == seen > 0
    less = WeightSync(policy, sampler, temperature=1.0, tolerance=seen * 0.99)
    with pytest.raises(SyncError, match="disagree"):
        less(0, PROMPTS)


def test_how_far_the_policy_moved_is_measured_on_two_answers_of_the_check_before(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)

    def scored(fresh):
        """The policy's log-probs of the tokens of the first two completions."""
        logps = []
        for prompt, completion in list(zip(fresh.prompts, fresh.completions, strict=True))[:2]:
            with torch.no_grad():
                logits = policy(torch.tensor([[*prompt, *completion.ids]])).logits[0]
            logp = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            logps.append(logp.gather(1, torch.tensor(completion.ids)[:, None]).flatten())
        return torch.cat(logps)

    first = sync.send(0, PROMPTS)
    sync.compare(first)
    before = scored(first)
    shake(policy, 1)
    change = scored(first) - before
    assert change.mean().abs() < 0.9 * change.abs().mean()  # it moved both ways
    assert sync(1, PROMPTS).moved == pytest.approx(change.abs().mean().item(), rel=1e-3)


def test_a_check_after_a_resumption_measures_the_same_though_rounding_depends_on_the_batch(
    tiny_checkpoint, monkeypatch
):
    def rounds(policy, ids_RT, *more, **named):
        logp_M, entropy_M = score(policy, ids_RT, *more, **named)
        return logp_M + 1e-6 * ids_RT.numel(), entropy_M

    score = module.score
    monkeypatch.setattr(module, "score", rounds)
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    whole = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-2)
    whole(0, PROMPTS)
    shake(policy, 1)
    resumed = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-2)
    assert whole(1, PROMPTS).moved is not None and resumed(1, PROMPTS).moved is None
    shake(policy, 2)
    assert whole(2, PROMPTS).moved == resumed(2, PROMPTS).moved


def test_the_other_ranks_are_called_before_the_weights_are_sent_and_before_they_score(
    tiny_checkpoint,
):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    called = []
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4, command=called.append)
    fresh = sync.send(0, PROMPTS)
    assert called == ["send_weights"]
    sync.compare(fresh)
    assert called == ["send_weights", "score_empty"]


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (3, r"3 of \d+ tensors \([\w.]+, [\w.]+, [\w.]+\) differ"),
        (4, r"4 of \d+ tensors \([\w.]+, [\w.]+, [\w.]+, \.\.\.\) differ"),
    ],
)
def test_of_many_wrong_tensors_the_first_three_are_named(tiny_checkpoint, count, named):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    digests = sampler.digests
    sampler.digests = lambda shapes: [
        (name, (one, other + (n < count))) for n, (name, (one, other)) in enumerate(digests(shapes))
    ]
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match=named):
        sync(0, PROMPTS)


class TwoEngines:
    """A sampler of two engines."""

    name, dtype = "two", "float32"

    def __init__(self, *engines):
        self.engines = dict(zip(("left", "right"), engines, strict=True))

    @property
    def version(self):
        return self.engines["left"].version

    def load_weights(self, weights, version):
        weights = list(weights)
        for engine in self.engines.values():
            engine.load_weights(weights, version)

    def digests_of_each(self, shapes):
        return [(name, engine.digests(shapes)) for name, engine in self.engines.items()]

    def sample_of_each(self, prompts, how):
        return [(name, engine.sample(prompts, how)) for name, engine in self.engines.items()]


def test_every_engine_of_a_sampler_is_verified_and_the_wrong_one_is_named(tiny_checkpoint):
    folder = tiny_checkpoint()
    policy, two = load_policy(folder), TwoEngines(opened("torch", folder), opened("torch", folder))
    sync = WeightSync(policy, two, temperature=1.0, tolerance=1e-4)
    alone = WeightSync(policy, two.engines["left"], temperature=1.0, tolerance=1e-4)
    assert sync(0, PROMPTS).tokens == 2 * alone(0, PROMPTS).tokens
    shake(two.engines["right"]._model, 1)
    with pytest.raises(SyncError, match="the right sampler and the trainer disagree"):
        sync.prove(0, PROMPTS)
    two.engines["right"].load_weights = lambda weights, version: None
    with pytest.raises(SyncError, match="the right sampler holds other weights"):
        sync(1, PROMPTS)


def test_a_token_belongs_to_the_engine_that_sampled_its_completion():
    answers = [Completion(ids=(7,) * n, logp=(0.0,) * n, finish="stop") for n in (2, 1, 3, 1)]
    fresh = Fresh(0, ((1,),) * 4, tuple(answers), ("left", "right"))
    assert [fresh.engine_at(token) for token in range(7)] == ["left"] * 3 + ["right"] * 4


def test_the_tolerance_of_a_step_is_the_samplers_unless_trainer_or_sampler_rounds():
    exact, half = TrainerConfig(), TrainerConfig(compute="bfloat16")
    assert batch_tolerance(exact, SamplerConfig(), [], 0) == 1e-4
    assert batch_tolerance(half, SamplerConfig(), [], 0) == 0.03
    assert batch_tolerance(half, SamplerConfig(tolerance=0.2), [], 0) == 0.2
    assert batch_tolerance(exact, SamplerConfig(dtype="bfloat16"), [], 0) == 0.03


def test_what_an_earlier_policy_sampled_is_not_compared_with_this_one(graded):
    rollouts = [graded(policy_version=6), graded(policy_version=6)]
    assert batch_tolerance(TrainerConfig(), SamplerConfig(), rollouts, 6) == 1e-4
    assert batch_tolerance(TrainerConfig(), SamplerConfig(), rollouts, 8) is None
    rollouts[0] = graded(policy_version=5)
    assert batch_tolerance(TrainerConfig(), SamplerConfig(), rollouts, 6) is None


def test_a_sampler_of_another_version_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match="version 0 of the policy, not 2"):
        sync.prove(2, PROMPTS)


def test_another_temperature_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sample = sampler.sample
    sampler.sample = lambda prompts, how: sample(prompts, replace(how, temperature=0.9))
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match=r"a temperature other than 1\.0"):
        sync(0, PROMPTS)


def test_not_a_number_never_passes(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with torch.no_grad():
        policy.get_output_embeddings().weight[7, 3] = float("nan")
    with pytest.raises(SyncError, match="max nan"):
        sync.prove(0, PROMPTS)


def test_a_policy_that_did_not_move_leaves_the_proof_without_power_and_says_so(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    assert sync(1, PROMPTS).moved < 1e-6


def test_a_weight_of_another_name_is_refused(tiny_checkpoint):
    sampler = opened("torch", tiny_checkpoint())
    with pytest.raises(ValueError, match="do not match by name, first: 'lm_head"):
        sampler.load_weights([("lm_head.wait", torch.zeros(1))], 1)


def test_weights_are_compared_in_float32_and_rounding_in_the_trainer_s_own_precision(
    tiny_checkpoint,
):
    plain = load_policy(tiny_checkpoint())
    policy = prepare(load_policy(tiny_checkpoint()), TrainerConfig(compute="bfloat16"))
    sequences, lengths = [(1, 40, 41, 42, 50, 51), (1, 50, 60, 61)], [4, 2]

    def scores(model, **exact):
        sync = WeightSync(model, None, temperature=1.0, tolerance=1e-4)
        return sync._score(sequences, lengths, **exact)[0]

    right, own = scores(plain), scores(policy, exact=False)
    torch.testing.assert_close(scores(policy), right, atol=1e-5, rtol=0)
    assert 1e-5 < (own - right).abs().max() < 0.1


def test_a_trainer_in_bfloat16_proves_its_weights_as_exactly_as_one_in_float32(tiny_checkpoint):
    folder = tiny_checkpoint()
    policy = prepare(load_policy(folder), TrainerConfig(compute="bfloat16"))
    sampler = opened("torch", folder)
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    assert 0 < sync(0, PROMPTS).max <= 1e-4
    shake(policy, 1, size=1e-3)  # less than what bfloat16 would hide
    with pytest.raises(SyncError, match="disagree"):
        sync.prove(0, PROMPTS)
    assert sync(1, PROMPTS).max <= 1e-4


@pytest.fixture
def rounded(tiny_checkpoint):
    """(policy, its sync to a sampler that samples with weights in bfloat16, that sampler)"""
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sampler.dtype = "bfloat16"
    return policy, WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4), sampler


def test_rounding_of_the_sampler_and_an_outlier_neither_stop_a_run_nor_warn(rounded, monkeypatch):
    policy, sync, sampler = rounded
    for version in range(6):
        shake(policy, version, size=1e-3)
        report = sync(version, PROMPTS)
        assert 1e-4 < report.mean < 0.03 and report.warnings == ()
    sample = sampler.sample

    def with_outlier(*asked):
        (first, *others) = sample(*asked)
        off = replace(first[0], logp=(first[0].logp[0] - 0.653, *first[0].logp[1:]))
        return [[off], *others]

    monkeypatch.setattr(sampler, "sample", with_outlier)
    report = sync(6, PROMPTS)
    assert report.max > 0.6 and report.warnings == ()


@pytest.mark.parametrize(
    ("wrong", "compute"), [(0.7, "float32"), (1.4, "float32"), (0.9, "bfloat16"), (1.1, "bfloat16")]
)
def test_another_temperature_of_a_sampler_that_rounds_is_measured(
    rounded, wrong, compute, monkeypatch
):
    policy, sync, sampler = rounded
    prepare(policy, TrainerConfig(compute=compute))
    sample = sampler.sample
    monkeypatch.setattr(
        sampler, "sample", lambda prompts, how: sample(prompts, replace(how, temperature=wrong))
    )
    with pytest.raises(SyncError, match=r"those of a temperature of .*, not 1\.0") as stopped:
        list(map(lambda version: sync(version, PROMPTS), range(4)))
    measured = float(str(stopped.value).split("temperature of ")[1].split(",")[0])
    assert measured == pytest.approx(wrong, rel=0.05)


def test_what_rounding_does_to_all_log_probs_of_both_sides_is_not_another_temperature(
    rounded, monkeypatch
):
    """In bfloat16 distributions are flatter than in float32."""
    policy, sync, _ = rounded
    prepare(policy, TrainerConfig(compute="bfloat16"))
    score = sync._score

    def sharper_in_float32(sequences, prompts, *, exact=True):
        logp_M, entropy_M = score(sequences, prompts, exact=exact)
        return logp_M + 0.3 * (logp_M + entropy_M) * exact, entropy_M

    monkeypatch.setattr(sync, "_score", sharper_in_float32)
    assert all(sync(version, PROMPTS).mean > 0.05 for version in range(6))


@pytest.mark.slow
def test_log_probs_that_became_worse_are_a_warning(rounded, monkeypatch):
    policy, sync, sampler = rounded
    for version in range(6):
        shake(policy, version, size=1e-3)
        assert sync(version, PROMPTS).warnings == ()
    sample = sampler.sample

    def noisy(*asked):
        groups = sample(*asked)
        return [
            [replace(c, logp=tuple(x + 0.1 * (-1) ** i for i, x in enumerate(c.logp))) for c in g]
            for g in groups
        ]

    monkeypatch.setattr(sampler, "sample", noisy)
    (said,) = sync(6, PROMPTS).warnings
    assert "in the 6 checks before" in said and "the weights before would show" in said


def test_not_a_number_never_passes_in_reduced_precision_either(rounded):
    policy, sync, _ = rounded
    sync(0, PROMPTS)
    with torch.no_grad():
        policy.get_output_embeddings().weight[7, 3] = float("nan")
    with pytest.raises(SyncError, match="max nan"):
        sync.prove(0, PROMPTS)


def unreadable(sampler, name):
    """Lets the sampler read back all its weights but one."""
    digests = sampler.digests
    sampler.digests = lambda shapes: [held for held in digests(shapes) if held[0] != name]


def test_weights_that_cannot_be_read_back_are_named_once_where_tokens_prove_them(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    unreadable(sampler, "model.norm.weight")
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    (said,) = sync(0, PROMPTS).warnings
    assert "cannot read back 1 of" in said and "(model.norm.weight); only the log-probs" in said
    assert sync(1, PROMPTS).warnings == ()


def test_they_are_refused_where_tokens_do_not(rounded):
    _, sync, sampler = rounded
    unreadable(sampler, "model.norm.weight")
    with pytest.raises(SyncError, match=r"\(model.norm.weight\), and tokens sampled in bfloat16"):
        sync(0, PROMPTS)


def test_weights_are_cast_and_sent_one_at_a_time(rounded, monkeypatch):
    _, sync, sampler = rounded
    load, last = sampler.load_weights, []

    def one_at_a_time(weights, version):
        def watched():
            for name, weight in weights:
                assert weight.dtype is torch.bfloat16 and not weight.requires_grad
                assert not last or last[0]() is None, f"the weight before {name} is still held"
                last[:] = [weakref.ref(weight)]
                yield name, weight
                del weight

        load(watched(), version)

    monkeypatch.setattr(sampler, "load_weights", one_at_a_time)
    assert sync(0, PROMPTS).warnings == () and last


def test_weights_that_a_sampler_does_not_take_are_computed_one_at_a_time_too(rounded, monkeypatch):
    policy, sync, sampler = rounded
    sync(0, PROMPTS)
    computed, last = [], []

    def watched(weight):
        assert not last or last[0]() is None, "the weight before is still held"
        last[:] = [weakref.ref(weight)]
        computed.append(tuple(weight.shape))
        return digest_tensor(weight)

    def of_one_weight(weights, version):
        next(weights)
        if len(computed) == 1:
            raise SendAgainError("a server was lost")

    monkeypatch.setattr(module, "digest_tensor", watched)
    monkeypatch.setattr(sampler, "load_weights", of_one_weight)
    sync.send(1, PROMPTS)
    assert computed == [tuple(weight.shape) for weight in policy.parameters()] * 2
