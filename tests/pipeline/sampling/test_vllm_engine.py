"""What vLLM is handed, against an engine that only looks."""

import torch

from veriloop.pipeline.sampling.vllm_engine import VllmSampler


def test_weights_are_handed_over_one_by_one():
    """Adapters are merged as they are asked for: a whole second model is never held."""
    made = []

    def weights():
        for name in "abc":
            made.append(name)
            yield name, torch.ones(1, requires_grad=True)

    class Engine:
        def collective_rpc(self, what, kwargs):
            assert what == "reload_weights"
            for at, (name, weight) in enumerate(kwargs["weights_iterator"], 1):
                assert made == list("abc"[:at]) and name == made[-1]
                assert not weight.requires_grad

        def reset_prefix_cache(self):
            return True

    sampler = object.__new__(VllmSampler)
    sampler._tied, sampler._asleep, sampler._engine = False, False, Engine()
    sampler.load_weights(weights(), 7)
    assert made == list("abc") and sampler.version == 7
