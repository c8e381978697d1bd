"""Where responses come from: one protocol, several engines, and the proof that weights arrived."""
