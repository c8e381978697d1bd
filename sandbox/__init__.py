"""Run untrusted code: isolated, bounded, and measured from outside."""
