"""What servers are asked at once: requests are made as there is room for them."""

import pytest
import torch

from tests.vllm_stand_in import StandIn, serving
from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.served import ServedSampler

PROMPTS = [(1, *range(2, 2 + n)) for n in range(6)]
SAMPLING = Sampling(per_prompt=2, temperature=1.0, max_tokens=8, seed=3)
PLACES = 4  # of two servers with room for two asks each


@pytest.fixture
def sampler(tiny_checkpoint, tmp_path):
    one, two = StandIn(), StandIn()
    with serving(one), serving(two):
        cluster = ClusterConfig.model_validate({"samplers": {"urls": [one.url, two.url]}})
        sampler = ServedSampler(
            cluster, SamplerConfig(max_batch=2), str(tiny_checkpoint()), tmp_path,
            max_length=96, say=lambda _: None,
        )  # fmt: skip
        sampler.load_weights([("a", torch.ones(2))], 0)
        yield sampler
        sampler.close()


def test_a_request_is_made_when_a_server_has_room_for_it(sampler):
    requests, answers, most = [], [], 0

    def bodies():
        nonlocal most
        for body in sampler._requests.of_prompts(PROMPTS, SAMPLING, sampler._label):
            most = max(most, len(requests) - len(answers))
            requests.append(body)
            yield body

    def answered(place, completion):
        answers.append((place, completion.ids))

    sampler._run(lambda: sampler._ask_all(bodies(), 12, answered))
    assert most == PLACES - 1 and len(requests) == 12  # besides the one that is made
    flat = [one.ids for group in sampler.sample(PROMPTS, SAMPLING) for one in group]
    assert sorted(answers) == list(enumerate(flat))


def test_a_group_is_reported_once_all_its_answers_are_there(sampler):
    heard = {}

    def on_complete(index, group):
        assert index not in heard
        heard[index] = list(group)

    groups = sampler.sample(PROMPTS, SAMPLING, on_complete)
    assert heard == dict(enumerate(groups)) and {len(group) for group in groups} == {2}
    assert sampler.sample([], SAMPLING) == []


def test_an_error_of_who_hears_an_answer_ends_the_others(sampler):
    def fail(index, group):
        raise StageError(f"no place for group {index}")

    with pytest.raises(StageError, match="no place for group"):
        sampler.sample(PROMPTS, SAMPLING, fail)
    assert set(sampler.fleet.open.values()) == {0} and len(sampler.fleet.ready) == 2


def test_asks_without_a_server_are_refused_by_name(sampler):
    for url in list(sampler.fleet.open):
        sampler.fleet.drop(url, "gone")
    with pytest.raises(StageError, match="is left to sample"):
        sampler.sample(PROMPTS, SAMPLING)
