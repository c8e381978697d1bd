"""The gradient of a model as one vector."""

import torch


def take_gradient(model):
    """The gradients of all parameters that have one, flat; they are cleared."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat
