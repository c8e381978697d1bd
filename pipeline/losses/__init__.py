"""The arithmetic of learning: pure functions on tensors, with no model, optimizer or config."""
