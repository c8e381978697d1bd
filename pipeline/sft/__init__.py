"""Supervised fine-tuning: the dataset, its optimizer step, and rejection sampling of new rows."""
