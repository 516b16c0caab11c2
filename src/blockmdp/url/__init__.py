"""URL, exploration by unsupervised learning: Feng et al. 2020, Algorithms 1 to 3."""

from blockmdp.url.agent import URL
from blockmdp.url.fix_label import LabelStandard, fix_label
from blockmdp.url.tsr import TSR, Refit, agreement

__all__ = ["TSR", "URL", "LabelStandard", "Refit", "agreement", "fix_label"]
