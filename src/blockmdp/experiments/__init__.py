"""Experiments: many runs, their curves, figures and tables."""
