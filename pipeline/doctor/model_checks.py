"""All checks of a checkpoint, in the order of the output."""

from veriloop.pipeline.doctor.batch_invariance import left_padding, logits, packing
from veriloop.pipeline.doctor.chat_template import (
    beginnings,
    reasoning,
    round_trip,
    template_ids,
    think_tags,
)
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Check
from veriloop.pipeline.doctor.precision import in_bfloat16, norm_and_softmax
from veriloop.pipeline.doctor.rewards import rewards
from veriloop.pipeline.doctor.sampler_agreement import log_probs, temperature, weight_sync
from veriloop.pipeline.doctor.stop_tokens import end_ids, end_of_turn, padding
from veriloop.pipeline.doctor.tokenizer import reloading, vocabulary
from veriloop.pipeline.doctor.weights import complete, positions, tied_head

MODEL: tuple[Check[CheckpointUnderTest], ...] = (
    Check(name="weights", run=complete),
    Check(name="tied head", run=tied_head),
    Check(name="positions", run=positions),
    Check(name="vocabulary", run=vocabulary),
    Check(name="end ids", run=end_ids),
    Check(name="end of turn", run=end_of_turn),
    Check(name="pad", run=padding),
    Check(name="BOS", run=beginnings),
    Check(name="round trip", run=round_trip),
    Check(name="template ids", run=template_ids),
    Check(name="template, reasoning", run=reasoning),
    Check(name="think tags", run=think_tags),
    Check(name="tokenizer, reloaded", run=reloading),
    Check(name="logits", run=logits),
    Check(name="log-probs", run=log_probs),
    Check(name="temperature", run=temperature),
    Check(name="weight sync", run=weight_sync),
    Check(name="packing", run=packing),
    Check(name="left padding", run=left_padding),
    Check(name="norm and softmax", run=norm_and_softmax),
    # Last of the model's own checks: it closes the float32 engine.
    Check(name="log-probs, bfloat16", run=in_bfloat16),
    Check(name="rewards", run=rewards),
)
