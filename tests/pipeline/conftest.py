"""A Llama small enough for many steps a second, and rollouts that it might have sampled."""

import importlib.util
import sys
from dataclasses import replace
from random import Random
from types import ModuleType

import pytest
import torch

from tests import rollouts
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.rl.minibatches import minibatches
from veriloop.pipeline.rl.update import UpdateContext, update
from veriloop.pipeline.types import Signals

VOCABULARY = 40
MAX_TOKENS = 9
CHUNK = 5


class Unshuffled(Random):
    """Leaves the order alone, to be checked by hand."""

    def shuffle(self, x):
        del x


class Keeper:
    """Stands in for the optimizer: keeps the gradient and steps nowhere."""

    def __init__(self, model):
        self.model, self.gradient, self.told = model, None, None

    def forget(self):
        self.model.zero_grad()

    def step(self, progress, done):
        self.told = (progress, done)
        self.gradient = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        self.model.zero_grad()
        return 0.25, 0.125


@pytest.fixture
def tiny_llama():
    """Factory of untrained models whose logits are far from uniform. Id 0 pads *and* ends."""
    from transformers import LlamaConfig, LlamaForCausalLM

    def build(seed=0, *, layers=1, spread=0.4):
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=spread,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=0,
            pad_token_id=None,
            dtype="float32",
        )
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).train()

    return build


@pytest.fixture
def graded():
    """Factory of graded rollouts; what a test says nothing about is plain."""
    return rollouts.graded


@pytest.fixture
def plain_scores():
    """Log-probs and entropies of one response, a token at a time from `model(ids).logits`."""

    def score(model, prompt, response, temperature=1.0):
        ids, logps, entropies = [*prompt, *response], [], []
        for t in range(len(prompt), len(ids)):
            logits = model(torch.tensor([ids[:t]])).logits[0, -1]  # nothing after t - 1 is seen
            chances = (logits / temperature).softmax(-1)
            logps.append(chances[ids[t]].log())
            entropies.append(-(chances * chances.log()).sum())
        return torch.stack(logps), torch.stack(entropies)

    return score


@pytest.fixture
def sampled(tiny_llama, plain_scores, graded):
    """Factory of `count` rollouts in groups of four whose log-probs are the model's own."""

    def build(model, count, *, seed=0, temperature=1.0, noise=0.0, longest=6):
        random, found = Random(seed), []
        for i in range(count):
            prompt = [random.randrange(1, VOCABULARY) for _ in range(random.randint(2, 5))]
            length = random.randint(1, longest)
            response = [random.randrange(1, VOCABULARY) for _ in range(length)]
            with torch.no_grad():
                logp, _ = plain_scores(model, prompt, response, temperature)
            found.append(
                graded(
                    prompt,
                    response,
                    reward=random.choice((0.0, 1.0, 2.0)),
                    logp=[p + random.uniform(-noise, noise) for p in logp.tolist()],
                    group=f"1/{i // 4}",
                    temperature=temperature,
                )
            )
        return found

    return build


@pytest.fixture
def unshuffled():
    return Unshuffled()


@pytest.fixture
def shifted():
    """Function: the same rollout from a sampler whose log-probs are all off by as much."""

    def shift(graded, by):
        logp = tuple(x + by for x in graded.rollout.logp)
        return replace(graded, rollout=replace(graded.rollout, logp=logp))

    return shift


@pytest.fixture
def whole():
    """Function: all rollouts in one minibatch, in their order."""

    def build(rollouts, advantages_N, row=32, rows=4):
        (part,) = minibatches(
            rollouts,
            AlgorithmConfig(minibatches=1),
            TrainerConfig(row=row, rows=rows),
            max_tokens=MAX_TOKENS,
            shuffle=Unshuffled(),
        )
        return with_advantages([part], advantages_N)[0]

    return build


def with_advantages(parts, advantages_N):
    """Parts whose signals are these advantages of whole rollouts, and what the sampler said."""

    def signals(batch):
        return Signals(
            advantages_M=advantages_N[batch.rollout_B[batch.sequence_RT[batch.mask_RT]]],
            old_M=batch.sampler_logp_RT[batch.mask_RT],
        )

    return [replace(part, signals=tuple(map(signals, part.batches))) for part in parts]


@pytest.fixture
def weighed():
    return with_advantages


def asked(part, *, old=None, reference=None):
    """The part with what these models say in its signals."""
    made = []
    for batch, one in zip(part.batches, part.signals, strict=True):
        with torch.no_grad():
            if old is not None:
                one = replace(one, old_M=logp_entropy(old, batch, CHUNK)[0])
            if reference is not None:
                one = replace(one, reference_M=logp_entropy(reference, batch, CHUNK)[0])
        made.append(one)
    return replace(part, signals=tuple(made))


@pytest.fixture
def stepped():
    """Function: the gradient and the Update of one optimizer step that changes no weight."""

    def step(model, part, algorithm, *, reference=None, old=None, **rest):
        keeper = Keeper(model)
        part = asked(part, old=old, reference=reference)
        settings = {"progress": 0.5, "done": 3} | rest
        learner = UpdateContext(policy=model, optimizer=keeper, algorithm=algorithm, chunk=CHUNK)
        done = update(learner, part, **settings)
        assert keeper.told == (settings["progress"], settings["done"])
        return keeper.gradient, done

    return step


CODES = [  # of NF4: arXiv 2305.14314, appendix E
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip


def _quantized(values, block, kind, storage):
    assert (kind, storage) == ("nf4", torch.uint8)
    numbers = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % block))
    scales = numbers.view(-1, block).abs().amax(1)
    shares = numbers.view(-1, block) / scales[:, None]
    codes = (shares.flatten()[: values.numel(), None] - torch.tensor(CODES)).abs().argmin(1)
    return (codes[0::2] * 16 + codes[1::2]).to(torch.uint8)[:, None], scales


def _dequantized(packed, scales, block, kind, shape, dtype):
    assert kind == "nf4"
    codes = torch.stack([packed.flatten() // 16, packed.flatten() % 16], 1).flatten().long()
    scale = scales.repeat_interleave(block)[: len(codes)]
    return (torch.tensor(CODES)[codes] * scale).view(shape).to(dtype)


@pytest.fixture(scope="session")
def operations_of_four_bits():
    """Those of bitsandbytes, or where it is not installed the two in torch. Whether they are
    stand-ins."""
    if importlib.util.find_spec("bitsandbytes"):
        importlib.import_module("bitsandbytes")
        yield False
        return
    with torch.library._scoped_library("bitsandbytes", "DEF") as library:
        library.define("quantize_4bit(Tensor A, int blocksize, str quant_type, ScalarType "
                       "quant_storage) -> (Tensor, Tensor)")  # fmt: skip
        library.define("dequantize_4bit(Tensor A, Tensor absmax, int blocksize, str quant_type, "
                       "int[] shape, ScalarType dtype) -> Tensor")  # fmt: skip
        library.impl("quantize_4bit", _quantized, "CPU")
        library.impl("dequantize_4bit", _dequantized, "CPU")
        yield True


@pytest.fixture
def four_bits(operations_of_four_bits, monkeypatch):
    """A library for weights in 4 bits."""
    if operations_of_four_bits:
        monkeypatch.setitem(sys.modules, "bitsandbytes", ModuleType("bitsandbytes"))


@pytest.fixture
def beside_first_save(monkeypatch):
    """Function: have `work` run between the first `torch.save` and what its caller does next."""

    def arrange(work):
        waiting, save = [work], torch.save

        def saved(value, path):
            save(value, path)
            if waiting:
                waiting.pop()()

        monkeypatch.setattr(torch, "save", saved)

    return arrange
