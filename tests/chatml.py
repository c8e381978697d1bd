"""A tokenizer whose BOS token is the marker that begins a turn, as SmolLM2's."""

import copy

TURN, END = "<|im_start|>", "<|im_end|>"
CHATML = (  # a system message is written if the conversation has none
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def with_chatml(tokenizer):
    """A copy whose EOS token ends a turn; it adds neither by itself."""
    changed = copy.deepcopy(tokenizer)
    changed.add_special_tokens({"bos_token": TURN, "eos_token": END})
    changed.backend_tokenizer.post_processor = None
    changed.chat_template = CHATML
    return changed
