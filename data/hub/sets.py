"""The published data sets that are known by name, as a table without code."""

from collections.abc import Mapping
from dataclasses import replace

from veriloop.data.hub.layout import Layout

_MATH = Layout(
    ask=("{problem}",),
    verifier="math_answer",
    reference={"answer": "answer"},
)
_NUMINA = replace(
    _MATH,
    facts={"origin": "source", "subject": "problem_type"},
    only={
        "problem_is_valid": ("Yes",),
        "solution_is_valid": ("Yes",),
        "question_type": ("math-word-problem",),
    },
)
_CODE = Layout(verifier="code_tests")
# Starter code is annotated with List[int] and the like, without the import.
_STARTER = "Begin with:\n```python\nfrom typing import *\n\n{starter_code}\n```"
_APPS = replace(
    _CODE,
    test="test",
    ask=("{question}", _STARTER),
    read="inputs_outputs",
    reference={"tests": "input_output"},
    solution="solutions",
    facts={"difficulty": "difficulty"},
    script=True,
)
_HUMANEVAL = replace(
    _CODE,
    train="",
    test="test",
    ask=("Complete this program. Answer with all of it.\n```python\n{prompt}\n```",),
    read="check_function",
    reference={"tests": "test", "function": "entry_point", "setup": "prompt"},
    solution="prompt+canonical_solution",
    facts={"row": "task_id"},
)
_PREFERENCES = Layout(kind="preferences", test="test")

SETS: Mapping[str, Layout] = {
    "gsm8k": Layout(
        repo="openai/gsm8k",
        config="main",
        test="test",
        ask=("{question}",),
        verifier="math_answer",
        read="hashes",
        reference={"answer": "answer"},
        worked="annotated",
    ),
    "svamp": Layout(
        repo="ChilleD/SVAMP",
        test="test",
        ask=("{Body}", "{Question}"),
        verifier="math_answer",
        read="number",
        reference={"answer": "Answer"},
        worked="equation",
        facts={"subject": "Type", "row": "ID"},
    ),
    "math": replace(
        _MATH,
        repo="DigitalLearningGmbH/MATH-lighteval",
        config="default",
        test="test",
        read="boxed",
        reference={"answer": "solution"},
        facts={"difficulty": "level", "subject": "type"},
    ),
    "math500": replace(
        _MATH,
        repo="HuggingFaceH4/MATH-500",
        train="",
        test="test",
        facts={"difficulty": "level", "subject": "subject", "row": "unique_id"},
    ),
    "aime24": replace(
        _MATH,
        repo="HuggingFaceH4/aime_2024",
        train="",
        test="train",
        ask=("{problem|Problem}",),
        read="number",
        reference={"answer": "answer|Answer"},
    ),
    "aime25": replace(
        _MATH,
        repo="math-ai/aime25",
        train="",
        test="test",
        ask=("{problem|question}",),
        read="number",
    ),
    "numina_cot": replace(
        _MATH,
        repo="AI-MO/NuminaMath-CoT",
        test="test",
        read="boxed",
        reference={"answer": "solution"},
        facts={"origin": "source"},
    ),
    "numina_1_5": replace(_NUMINA, repo="AI-MO/NuminaMath-1.5"),
    "openr1_math": replace(
        _NUMINA,
        repo="open-r1/OpenR1-Math-220k",
        config="default",
        only={"question_type": ("math-word-problem",)},
    ),
    "deepscaler": replace(_MATH, repo="agentica-org/DeepScaleR-Preview-Dataset"),
    "dapo_math": replace(
        _MATH,
        repo="BytedTsinghua-SIA/DAPO-Math-17k",
        ask=("{prompt.0.content}",),
        strip=(
            "Solve the following math problem step by step. The last line of your response should "
            "be of the form Answer: $Answer (without quotes) where $Answer is the answer to the "
            "problem.\n\n",
            '\n\nRemember to put your answer on its own line after "Answer:".',
        ),
        reference={"answer": "reward_model.ground_truth"},
        facts={"row": "extra_info.index"},
    ),
    "countdown": Layout(
        repo="Jiayi-Pan/Countdown-Tasks-3to4",
        ask=(
            "Using the numbers {nums}, write an expression that equals {target}. Use + - * / and "
            "parentheses, and each number exactly once.",
        ),
        verifier="countdown",
        read="plain",
        reference={"numbers": "nums", "target": "target"},
    ),
    "mbpp": replace(
        _CODE,
        repo="google-research-datasets/mbpp",
        config="full",
        test="test",
        ask=("{text|prompt}", "It has to pass:\n```python\n{test_list.0}\n```"),
        read="asserts",
        reference={"tests": "test_list", "setup": "test_setup_code|test_imports"},
        solution="code",
        facts={"row": "task_id"},
    ),
    "humaneval": replace(_HUMANEVAL, repo="openai/openai_humaneval"),
    "humaneval_plus": replace(_HUMANEVAL, repo="evalplus/humanevalplus"),
    "apps": replace(_APPS, repo="codeparrot/apps"),
    "taco": replace(_APPS, repo="BAAI/TACO"),
    "livecodebench": replace(
        _CODE,
        repo="lighteval/code_generation_lite",
        config="v6",
        train="",
        test="test",
        ask=("{question_content}", _STARTER),
        read="livecodebench",
        facts={"difficulty": "difficulty", "row": "question_id", "date": "contest_date"},
    ),
    "codeforces": replace(
        _CODE,
        repo="open-r1/codeforces",
        config="verifiable",
        test="test",
        ask=(
            "{title}\n\n{description}",
            "Input\n\n{input_format}",
            "Output\n\n{output_format}",
            "Note\n\n{note}",
            "Example input\n```\n{examples.0.input}\n```\n"
            "Example output\n```\n{examples.0.output}\n```",
        ),
        read="codeforces",
        reference={"tests": "official_tests"},
        only={"executable": (True,)},
        facts={"difficulty": "rating", "row": "id"},
    ),
    "ultrafeedback_binarized": replace(
        _PREFERENCES,
        repo="HuggingFaceH4/ultrafeedback_binarized",
        train="train_prefs",
        test="test_prefs",
        read="pair",
    ),
    "ultrafeedback": replace(_PREFERENCES, repo="openbmb/UltraFeedback", test="", read="ranking"),
    "hh_rlhf": replace(_PREFERENCES, repo="Anthropic/hh-rlhf", read="dialogues"),
    "mixture_of_thoughts": Layout(
        repo="open-r1/Mixture-of-Thoughts", config="all", kind="sft", read="messages"
    ),
}
