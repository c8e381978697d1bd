"""Mutants that no test can kill, each with its reason: nearly all compute the same."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A mutant that no test can notice, since it computes the same unless it is `untestable`."""

    path: str
    before: str
    after: str
    reason: str
    within: str = ""  # part of the mutated line, where `before` and `after` occur in others too
    untestable: bool = False  # it computes otherwise where no test looks, or is as good a choice


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        path="pipeline/model/logprob.py",
        before="1024",
        after="(1025)",
        reason="any width of a tile gives the same numbers, and the tests choose their own",
    ),
    Equivalent(
        path="pipeline/model/logprob.py",
        before="ctx.set_materialize_grads(False)",
        after="pass",
        reason="gradients of zeros then stand for none: more work, the same numbers",
    ),
    Equivalent(
        path="pipeline/model/logprob.py",
        before="False",
        after="(True)",
        within="ctx.set_materialize_grads((True))",
        reason="gradients of zeros then stand for none: more work, the same numbers",
    ),
    Equivalent(
        path="pipeline/model/logprob.py",
        before="logits_CS if temperature == 1 else logits_CS.div_(temperature)",
        after="(logits_CS.div_(temperature))",
        reason="dividing by 1 changes nothing",
    ),
    Equivalent(
        path="pipeline/rl/estimator.py",
        before="512",
        after="(513)",
        reason="how many tokens prove the sampler's weights is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/model/packing.py",
        before="torch.full(shape, -1, dtype=torch.int64)",
        after="(torch.full(shape, -1))",
        reason="torch.full takes int64 from an int",
    ),
    Equivalent(
        path="pipeline/model/packing.py",
        before="torch.tensor(sequences[b][borrowed[b] :], dtype=torch.int64)",
        after="(torch.tensor(sequences[b][borrowed[b]:]))",
        reason="what it is written into is of int64",
    ),
    Equivalent(
        path="pipeline/model/packing.py",
        before="0",
        after="(1)",
        within="room.get(key := tuple(prompt), ((1), []))",
        reason="nobody looks at the room of a group without members",
    ),
    Equivalent(
        path="pipeline/rl/estimator.py",
        before="torch.zeros(len(tokens.rollout_A))",
        after="(-(torch.zeros(len(tokens.rollout_A))))",
        reason="a zero with a sign is a zero",
    ),
    Equivalent(
        path="pipeline/rl/estimator.py",
        before="trainer or reference is not None or critic is not None",
        after="(trainer and reference is not None and (critic is not None))",
        reason="every device is the CPU where these tests run",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/rl/estimator.py",
        before="device_of(policy) if needs_models else CPU",
        after="(CPU)",
        reason="every device is the CPU where these tests run",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/rl/estimator.py",
        before="torch.tensor([index[g.rollout.group] for g in graded])",
        after="(-(torch.tensor([index[g.rollout.group] for g in graded])))",
        reason="groups are told apart by any numbers",
    ),
    Equivalent(
        path="pipeline/rl/update.py",
        before="logp_M.detach()",
        after="(logp_M)",
        within='sums.tally.add("kl", ',
        reason="a tally lets go of gradients itself; this one is not even begun",
    ),
    Equivalent(
        path="pipeline/rl/critic.py",
        before="self.head.to(next(policy.parameters()).device)",
        after="pass",
        reason="every device is the CPU where these tests run",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/rl/critic.py",
        before="self.head.to(next(policy.parameters()).device)",
        after="(self.head)",
        reason="every device is the CPU where these tests run",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/rl/critic.py",
        before="0",
        after="(1)",
        within="response_ids, (1))",
        reason="a last token is only ever a target",
    ),
    Equivalent(
        path="pipeline/rl/critic.py",
        before="packed.sequence_RT.clamp(min=0)",
        after="(packed.sequence_RT)",
        reason="what padding finds is taken out by the next line but one",
    ),
    Equivalent(
        path="pipeline/model/packing.py",
        before="1",
        after="(2)",
        within="(length, -(2))",
        reason="rows count from 0: any negative number sorts before all of them",
    ),
    Equivalent(
        path="verifiers/code/outcome.py",
        before="1",
        after="(2)",
        within="NO_PROGRAM = ",
        reason="no test has passed, so every share is 0 of however many",
    ),
    Equivalent(
        path="verifiers/code/compare.py",
        before="0.0",
        after="(1.0)",
        within="_same_set(actual, expected, (1.0), depth)",
        reason="members of a set have no tolerance, whatever it is given",
    ),
    Equivalent(
        path="verifiers/code/compare.py",
        before="0.0",
        after="(1.0)",
        within="_same(own[key], key, (1.0), depth)",
        reason="keys found by equality are equal in value already; only their types are compared",
    ),
    Equivalent(
        path="data/filters.py",
        before="0",
        after="(1)",
        within="min_words: int = (1)",
        reason="a sample without words has been dropped as unreadable before",
    ),
    Equivalent(
        path="data/decontaminate.py",
        before="hashlib.blake2b(gram.encode(), digest_size=8)",
        after="(hashlib.blake2b(gram.encode()))",
        reason="how long a digest is, is a choice",
        untestable=True,
    ),
    Equivalent(
        path="data/decontaminate.py",
        before="8",
        after="(9)",
        within="digest_size=(9)",
        reason="how long a digest is, is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="1",
        after="(2)",
        within="range(drawn + (2))",
        reason="a larger table: rows and columns past those that are read stay 0",
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="1",
        after="(2)",
        within="[[0] * (drawn + (2))",
        reason="a larger table: rows and columns past those that are read stay 0",
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="min",
        after="(max)",
        within="range((max)(len(ways)",
        reason="a larger table: rows and columns past those that are read stay 0",
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="drawn // most",
        after="(drawn * most)",
        within="(drawn * most)) + 1)",
        reason="a larger table: rows and columns past those that are read stay 0",
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="1",
        after="(2)",
        within="drawn // most) + (2))",
        reason="a larger table: rows and columns past those that are read stay 0",
    ),
    Equivalent(
        path="pipeline/evaluation/statistics.py",
        before="0",
        after="(1)",
        within="if base else (1)",
        reason="it adds nothing times something",
    ),
    Equivalent(
        path="pipeline/model/reference.py",
        before="1",
        after="(2)",
        within="_CHUNK = (2) << 22",
        reason="any number of weights at a time gives the same sum, and the tests choose their own",
    ),
    Equivalent(
        path="pipeline/model/reference.py",
        before="22",
        after="(23)",
        reason="any number of weights at a time gives the same sum, and the tests choose their own",
    ),
    Equivalent(
        path="pipeline/model/reference.py",
        before="bits_P[first : first + _CHUNK].to(torch.int64)",
        after="(bits_P[first:first + _CHUNK])",
        reason="the product with indices of int64 is of int64",
    ),
    Equivalent(
        path="pipeline/model/reference.py",
        before="p.detach()",
        after="(p)",
        reason="a new Parameter takes the values and no graph",
    ),
    Equivalent(
        path="pipeline/rollouts/step_scores.py",
        before="16",
        after="(17)",
        reason="how many responses are scored at a time is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/evaluation/evaluate.py",
        before="64",
        after="(65)",
        reason="how many problems are kept for reading is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/sampling/sync.py",
        before="8",
        after="(9)",
        within="max_tokens: int = ",
        reason="how many tokens prove the sampler's weights is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/sampling/sync.py",
        before="4096",
        after="(4097)",
        reason="any width of a tile gives the same numbers",
    ),
    Equivalent(
        path="pipeline/preference/objective.py",
        before="config.desirable_weight is not None and config.undesirable_weight is not None",
        after="(config.desirable_weight is not None or config.undesirable_weight is not None)",
        reason="a recipe that sets one of both weights is refused",
    ),
    Equivalent(
        path="pipeline/sft/step.py",
        before="entropy_M.detach()",
        after="(entropy_M)",
        reason="a tally lets go of gradients itself",
    ),
    Equivalent(
        path="pipeline/sft/step.py",
        before="torch.zeros((), dtype=torch.int64, device=hidden_MD.device)",
        after="(torch.zeros((), device=hidden_MD.device))",
        reason="float32 counts as exactly up to 2 ** 24 tokens, more than a piece has",
    ),
    Equivalent(
        path="pipeline/sft/step.py",
        before="-1",
        after="(1)",
        within="head(hidden_CD)",
        reason="the last of two axes is axis 1",
    ),
    Equivalent(
        path="pipeline/preference/reference_pass.py",
        before="256",
        after="(257)",
        reason="how many examples a file holds is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/preference/reference_pass.py",
        before="torch.load(path, weights_only=True)",
        after="(torch.load(path))",
        reason="torch loads only weights where it is told nothing",
    ),
    Equivalent(
        path="pipeline/distill/teacher_pass.py",
        before="256",
        after="(257)",
        reason="how many examples a file holds is a choice",
        untestable=True,
    ),
    Equivalent(
        path="pipeline/distill/teacher_pass.py",
        before="torch.load(path, weights_only=True)",
        after="(torch.load(path))",
        reason="torch loads only weights where it is told nothing",
    ),
    Equivalent(
        path="pipeline/runs/hub_push.py",
        before='TemporaryDirectory(prefix="veriloop-push-")',
        after="(TemporaryDirectory())",
        reason="what a folder is called that is gone after the upload is a choice",
        untestable=True,
    ),
)
