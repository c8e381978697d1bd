"""The prompt of R1-Zero (DeepSeek-R1, table 1), as text and as a chat template.

Verbatim but for the full stop after the prompt ("User: prompt. Assistant:"): questions bring their
own punctuation, and the tiny models are pre-trained without it.
"""

INSTRUCTION = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant "
    "solves it. The assistant first thinks about the reasoning process in the mind and then "
    "provides the user with the answer. The reasoning process and answer are enclosed within "
    "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process "
    "here </think> <answer> answer here </answer>."
)
R1_ZERO = INSTRUCTION + " User: {prompt} Assistant:"

SYSTEM = {  # system messages by name
    "r1": INSTRUCTION,
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",
}

# The same prompt for `apply_chat_template`; a system message replaces the instruction.
CHAT = (
    "{{- bos_token -}}"
    "{%- if messages[0]['role'] == 'system' -%}{{ messages[0]['content'] }}"
    "{%- else -%}" + INSTRUCTION + "{%- endif -%}"
    "{%- for message in messages if message['role'] != 'system' -%}"
    "{%- if message['role'] == 'user' -%}{{ ' User: ' + message['content'] + ' Assistant:' }}"
    "{%- else -%}{{ message['content'] + eos_token }}{%- endif -%}"
    "{%- endfor -%}"
)
