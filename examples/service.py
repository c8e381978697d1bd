"""The reward service behind a trainer of your own: batches of answers over HTTP.

In practice `veriloop serve` runs on its own machine and the trainer has only the client.
"""

from contextlib import closing

from veriloop.data.problem import Problem
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.service.server import RewardService, Settings


def main() -> None:
    problem = Problem(
        id="mine/0", prompt="What is 6 * 7?", verifier="math_answer", reference={"answer": "42"}
    )
    answers = [r"It is \boxed{42}.", r"It is \boxed{41}.", "I do not know."]
    with (
        RewardService(Settings(port=0, verifiers=("math_answer",))) as service,
        closing(ServicePool(service.url)) as pool,
    ):
        for verdict in pool.judge_all([(problem, answer) for answer in answers]):
            print(verdict.score, verdict.status, verdict.answer)


if __name__ == "__main__":  # the service judges in processes that import this file
    main()
