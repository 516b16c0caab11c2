"""The experiments of Feng et al. 2020: its studies, its claims and the report."""
