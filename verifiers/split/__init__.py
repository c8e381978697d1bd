"""Tests and program apart: what runs inside the two sandboxes of a trial, shipped as source."""
