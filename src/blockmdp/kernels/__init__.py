"""Compiled loops. Each is plain Python under `jit`, so that it also runs interpreted."""
