"""Train language models to reason with verifiable rewards.

The five packages lie at the top of the repository and are linked from here: `veriloop.stages`,
`veriloop.pipeline`, `veriloop.verifiers`, `veriloop.sandbox` and `veriloop.data`.
"""
