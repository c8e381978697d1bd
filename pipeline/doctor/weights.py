"""Checks that the model is complete: weights, head, positions."""

from collections.abc import Iterator

from veriloop.pipeline.config.checkpoints import positions_of
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped
from veriloop.pipeline.model.loading import BadCheckpointError


def complete(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether the files hold exactly the model's tensors, as loading for training requires."""
    try:
        count = sum(1 for _ in checkpoint.policy.parameters())
    except BadCheckpointError as failure:
        yield fail("weights", failure.problem, failure.next_step)
    else:
        yield ok("weights", f"all {count} tensors are in the files, and no others", 0)


def tied_head(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether output head and input embedding share a tensor exactly if the config says so."""
    policy = checkpoint.policy
    head = policy.get_output_embeddings().weight
    embedding = policy.get_input_embeddings().weight
    configured = bool(checkpoint.config.get_text_config().tie_word_embeddings)
    tied = head.data_ptr() == embedding.data_ptr()
    measured = f"config.json says {'tied' if configured else 'not tied'}"
    if configured != tied:
        fix = f'set "tie_word_embeddings": {str(tied).lower()} in config.json'
        yield fail("tied head", f"{measured}, the model has {1 if tied else 2} tensors", fix)
    else:
        yield ok("tied head", f"{measured}; {'one tensor' if tied else 'two tensors'}")


def positions(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Whether the recipe's longest prompt and response fit."""
    limit = positions_of(checkpoint.config.get_text_config().to_dict())
    if limit is None:
        yield skipped("positions", "config.json has no max_position_embeddings",
                      "nothing to do if the architecture has no limit")  # fmt: skip
        return
    measured = f"{limit:,} positions; the recipe needs up to {checkpoint.needed:,}"
    if limit < checkpoint.needed:
        fix = "lower rollout.max_prompt or rollout.max_tokens of the recipe"
        yield fail("positions", measured, fix, limit)
    else:
        yield ok("positions", measured, limit)
