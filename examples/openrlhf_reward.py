"""A reward file for OpenRLHF: `--reward.remote_url examples/openrlhf_reward.py`."""

from veriloop.verifiers.adapters.openrlhf import reward

reward_func = reward("math_answer")

if __name__ == "__main__":
    prompts = ["What is 1/4 + 1/4?"] * 2
    queries = [f"{prompts[0]} {answer}" for answer in (r"\boxed{0.5}", "2")]
    print(reward_func(queries=queries, prompts=prompts, labels=["1/2", "1/2"]))
