"""What each preset, preference loss and method of distillation needs, and when to use it.

`veriloop algorithms --compare` prints these texts; docs/ has the same tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

HEADER = ("name", "needs", "strengths", "weaknesses", "use it for")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One algorithm in plain words."""

    needs: str
    strengths: str
    weaknesses: str
    use: str


def comparison_of(name: str) -> Comparison:
    """The texts on an algorithm; for one without an entry in COMPARISONS, where to write it."""
    missing = Comparison(
        needs="not described: add an entry to COMPARISONS in pipeline/config/comparison.py",
        strengths="",
        weaknesses="",
        use="",
    )
    return COMPARISONS.get(name, missing)


def rows(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows under HEADER of algorithms, given by name."""
    texts = ((name, comparison_of(name)) for name in names)
    return [(name, c.needs, c.strengths, c.weaknesses, c.use) for name, c in texts]


COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {
        "reinforce": Comparison(
            needs="one response per question",
            strengths="unbiased; nothing to tune",
            weaknesses="very noisy: without a baseline all sampled responses are reinforced",
            use="showing why a baseline is needed",
        ),
        "vpg": Comparison(
            needs="one response per question",
            strengths="unbiased; no critic and no groups",
            weaknesses="one baseline for easy and hard questions; it lags; seeds differ widely",
            use="a single response per question and no memory for a critic",
        ),
        "rloo": Comparison(
            needs="two or more responses per question",
            strengths="unbiased, with a baseline of the question",
            weaknesses="one update per step; a high learning rate",
            use="the simplest algorithm that learns well from groups",
        ),
        "reinforce_pp": Comparison(
            needs="one response per question; a reference",
            strengths="no critic and no groups; the whole batch has one scale",
            weaknesses="easy and hard questions share one mean",
            use="a single response per question, many questions per step",
        ),
        "ppo": Comparison(
            needs="a critic, trained beside the policy",
            strengths="credit for single tokens; several updates per step",
            weaknesses="twice the memory; the critic must be learned and tuned",
            use="rewards within a response, or a reward model (RLHF)",
        ),
        "ppo_shared": Comparison(
            needs="a value head on the policy",
            strengths="PPO in the memory of one model",
            weaknesses="two losses compete for one trunk; slower than PPO here",
            use="PPO without room for a second model",
        ),
        "ppo_klpen": Comparison(
            needs="a critic; a target of KL per step",
            strengths="the distance is chosen in nats and not as a clip range",
            weaknesses="the weight follows the KL one step late",
            use="a known bound on the change per step",
        ),
        "ppo_ptx": Comparison(
            needs="a critic, a reference and a text to remember",
            strengths="keeps abilities outside the task",
            weaknesses="a pass over the text in every step; one more weight to tune",
            use="RLHF that must not forget",
        ),
        "trpo": Comparison(
            needs="a critic; room for six vectors of the size of the model",
            strengths="no learning rate: the step is as long as the bound allows, and is verified",
            weaknesses="about fifty passes over the batch for one update per step",
            use="small models, and as the reference for what PPO approximates",
        ),
        "line_search": Comparison(
            needs="a critic; passes that measure the KL of each step",
            strengths="no step exceeds the bound",
            weaknesses="one more forward pass for every attempt at a step",
            use="runs in which one bad step must not happen",
        ),
        "grpo": Comparison(
            needs="several responses per question; a reference",
            strengths="no critic; the algorithm of DeepSeek-R1",
            weaknesses="favours short right answers and long wrong ones; "
            "groups with equal rewards have no gradient",
            use="verifiable rewards; the default",
        ),
        "grpo_process": Comparison(
            needs="several responses per question; a verifier of steps; a reference",
            strengths="a wrong step lowers itself and what led to it, not the steps after it",
            weaknesses="as good as its scores of steps; many steps weigh more",
            use="solutions whose steps can be verified",
        ),
        "dr_grpo": Comparison(
            needs="several responses per question",
            strengths="GRPO without its biases of length and difficulty; no reference",
            weaknesses="the scale of its gradient depends on max_tokens",
            use="responses that grow without getting better",
        ),
        "dapo": Comparison(
            needs="several responses per question; cheap sampling",
            strengths="every group has a gradient; rare tokens may grow faster",
            weaknesses="samples more than it trains on; length limits to set",
            use="long runs in which many groups have equal rewards",
        ),
        "gspo": Comparison(
            needs="several responses per question",
            strengths="one ratio per response is less noisy than one per token",
            weaknesses="the clip range depends on the length; no credit for single tokens",
            use="mixtures of experts, long responses",
        ),
        "cispo": Comparison(
            needs="several responses per question",
            strengths="no token loses its gradient to the clip",
            weaknesses="bounds the weight of a token and not the step",
            use="rare tokens that change a chain of thought",
        ),
        "dpo": Comparison(
            needs="pairs; scores of a reference, computed once",
            strengths="no sampling and no reward model; well understood",
            weaknesses="margins grow without end; chosen answers may lose probability",
            use="pairs; the default",
        ),
        "ipo": Comparison(
            needs="pairs; scores of a reference",
            strengths="the margin ends at 1 / (2 tau)",
            weaknesses="the loss also pulls larger margins back",
            use="few pairs, or many epochs",
        ),
        "kto": Comparison(
            needs="answers labelled good or bad; scores of a reference",
            strengths="no pairs; good and bad may differ in number",
            weaknesses="an estimated reference point from the batch",
            use="thumbs up or down",
        ),
        "cpo": Comparison(
            needs="pairs whose chosen answers are worth imitating",
            strengths="no reference; imitation keeps the chosen answer likely",
            weaknesses="nothing holds the policy near its start",
            use="good chosen answers and no room for a reference",
        ),
        "simpo": Comparison(
            needs="pairs",
            strengths="no reference; length earns nothing",
            weaknesses="nothing keeps the chosen answer likely; margin and beta to tune",
            use="judges that prefer long answers",
        ),
        "orpo": Comparison(
            needs="pairs; a base model",
            strengths="fine-tuning and preferences in one stage; no reference",
            weaknesses="imitation dominates; preferences are learned slowly",
            use="one stage from a base model",
        ),
        "two_d_dpo": Comparison(
            needs="pairs of segments with scores; a reference",
            strengths="credit for segments and aspects",
            weaknesses="such data is rare",
            use="answers judged part by part",
        ),
        "sft": Comparison(
            needs="verified answers of a teacher; none of its weights",
            strengths="any tokenizer; the cheapest; the method of DeepSeek-R1",
            weaknesses="one sampled token of each distribution; the student never answers itself",
            use="teachers behind an API, or of another family",
        ),
        "logits": Comparison(
            needs="answers and one pass of the teacher; its tokenizer",
            strengths="the whole distribution at each token",
            weaknesses="the student never answers itself; stored scores take disk",
            use="few rows and a teacher at hand",
        ),
        "on_policy": Comparison(
            needs="questions; the teacher in memory; its tokenizer",
            strengths="trains on states that the student visits",
            weaknesses="samples in every step; the student must reach sensible answers",
            use="students that already answer sensibly",
        ),
    }
)
