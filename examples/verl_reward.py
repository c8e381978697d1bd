"""A reward file for verl.

    custom_reward_function.path=examples/verl_reward.py
    custom_reward_function.name=compute_score

The function gets one row at a time. VERILOOP_PLUGINS=file.py adds verifiers of your own.
"""

from veriloop.verifiers.adapters.verl import compute_score

__all__ = ["compute_score"]

if __name__ == "__main__":
    row = {"data_source": "mine", "ground_truth": r"\frac{1}{2}"}
    for response in (r"so the answer is \boxed{0.5}", r"so the answer is \boxed{2}"):
        print(compute_score(solution_str=response, **row))
