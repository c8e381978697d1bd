"""Settings under which several ranks must learn what one process learns."""

CASES = {
    "grpo": {"resumes": True},
    "tied": {"tied": True},
    "token_mean": {"algorithm": {"aggregation": "token_mean"}},
    "constant": {"algorithm": {"aggregation": "constant"}},
    "gspo": {"algorithm": {"objective": "gspo"}},
    "gspo_token": {"algorithm": {"objective": "gspo_token"}},
    "cispo": {"algorithm": {"objective": "cispo"}},
    "ratio": {"algorithm": {"objective": "ratio"}},
    "policy_gradient": {"algorithm": {"objective": "policy_gradient", "minibatches": 1}},
    "kl_penalty": {
        "algorithm": {
            "objective": "kl_penalty",
            "old_kl_coefficient": 0.1,
            "old_kl_target": 0.01,
        }
    },
    "trust_region": {"algorithm": {"trust_region": 1e-4}},
    "entropy": {"algorithm": {"entropy_coefficient": 0.02}},
    "whitened": {"algorithm": {"advantage": "global"}},
    "running": {"algorithm": {"advantage": "running"}},
    "process": {"algorithm": {"advantage": "process"}},
    "reference": {"resumes": True, "algorithm": {"kl_coefficient": 0.1, "reference_every": 2}},
    "reference in the reward": {
        "algorithm": {
            "kl_coefficient": 0.1,
            "kl_placement": "reward",
            "kl_estimator": "k1",
            "credit": "to_go",
        }
    },
    "mask_tokens": {"algorithm": {"old_logp": "trainer", "mismatch": "mask_tokens"}},
    "mask_sequences": {"algorithm": {"old_logp": "trainer", "mismatch": "mask_sequences"}},
    "separate critic": {"resumes": True, "algorithm": {"advantage": "gae", "critic": "separate"}},
    "shared critic": {"algorithm": {"advantage": "gae", "critic": "shared"}},
    "critic warm-up": {"algorithm": {"advantage": "gae", "critic": "separate", "critic_warmup": 1}},
    "pretraining": {"algorithm": {"ptx_coefficient": 0.1, "ptx_tokens": 100}},
    "adapters": {
        "resumes": True,
        "algorithm": {"kl_coefficient": 0.1, "reference_every": 2},
        "trainer": {"lora": {"rank": 4}},
    },
    "checkpointing": {"trainer": {"gradient_checkpointing": True}},
    "plain attention": {"trainer": {"packed_attention": False, "share_prompts": False}},
    "prompts not shared": {"trainer": {"share_prompts": False}},
    "every rollout": {"trainer": {"skip_zero_advantages": False}},
    "one row in all": {
        "rollouts": 4,
        "trainer": {"row": 128, "share_prompts": False},
        "algorithm": {"minibatches": 1, "kl_coefficient": 0.1},
    },
    "one long answer": {"rollouts": 4, "algorithm": {"minibatches": 4, "advantage": "global"}},
    "epochs": {"algorithm": {"epochs": 3}},
    "epochs with a critic": {
        "algorithm": {
            "epochs": 2,
            "advantage": "gae",
            "critic": "separate",
            "kl_coefficient": 0.1,
            "old_logp": "trainer",
            "mismatch": "mask_tokens",
        }
    },
    "distillation": {"resumes": True, "distill": {}},
    "distillation by jsd": {"distill": {"divergence": "jsd", "beta": 0.3, "minibatches": 2}},
    "distillation of one row": {
        "rollouts": 4,
        "distill": {"divergence": "reverse_kl"},
        "trainer": {"row": 128, "share_prompts": False},
    },
    "muon": {"resumes": True, "optimizer": {"muon_learning_rate": 1e-3, "muon_weight_decay": 0.1}},
}
