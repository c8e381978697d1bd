"""Requests to servers: one for each response, with a seed of its own."""

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling.sampler import Completion, Sampling
from veriloop.pipeline.sampling.served_requests import ServedRequests

SAMPLING = Sampling(per_prompt=3, temperature=0.7, max_tokens=8, seed=5)


@pytest.fixture
def requests(tiny_checkpoint):
    return ServedRequests(str(tiny_checkpoint()), 20)


def test_each_response_has_a_request_with_an_id_and_a_seed_of_its_own(requests):
    bodies = list(requests.of_prompts([(1, 2), (3,)], SAMPLING, "run-7"))
    first = 5 * 1_000_003
    seeds = [body["sampling_params"]["seed"] for body in bodies]
    assert seeds == [first, first + 1, first + 2, first + 3, first + 4, first + 5]
    assert bodies[3]["request_id"] == f"run-7-{first + 3}"
    assert [body["token_ids"] for body in bodies] == [[1, 2]] * 3 + [[3]] * 3
    assert {body["sampling_params"]["max_tokens"] for body in bodies} == {8}


def test_greedy_requests_have_no_seed(requests):
    greedy = Sampling(per_prompt=1, temperature=0.0, max_tokens=4, seed=5)
    (body,) = requests.of_prompts([(1,)], greedy, "x")
    assert body["sampling_params"]["seed"] is None


def test_a_prompt_beyond_the_room_of_the_servers_is_refused(requests):
    with pytest.raises(RecipeError, match="prompt 1 has 13 tokens; with max_tokens=8"):
        requests.of_prompts([(1,) * 12, (1,) * 13], SAMPLING, "x")


def test_a_completion_ends_with_the_token_that_completes_a_stop_string(requests):
    decode = requests._tokenizer.decode
    ids = tuple(requests._tokenizer.encode("one and two and three", add_special_tokens=False))
    whole = Completion(ids=ids, logp=tuple(-0.1 * n for n in range(len(ids))), finish="length")
    cut = requests.cut(whole, ("and",))
    assert cut.finish == "stop" and "and" in decode(cut.ids)
    assert "and" not in decode(cut.ids[:-1])
    assert cut.ids == ids[: len(cut.ids)] and cut.logp == whole.logp[: len(cut.ids)]
    assert requests.cut(whole, ()) is whole and requests.cut(whole, ("four",)) is whole
    empty = Completion(ids=(), logp=(), finish="stop")
    assert requests.cut(empty, ("and",)) is empty


def test_a_large_seed_of_a_recipe_makes_seeds_that_servers_take(requests):
    sampling = Sampling(per_prompt=2, temperature=1.0, max_tokens=4, seed=1234567890 * 100_000)
    seeds = [body["sampling_params"]["seed"] for body in requests.of_prompts([(1,)], sampling, "x")]
    assert all(0 <= seed < 2**63 for seed in seeds) and len(set(seeds)) == len(seeds)
