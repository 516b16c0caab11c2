"""URL: reinforcement learning with an unsupervised-learning oracle (Feng et al. 2020)."""

from blockmdp.url.agent import URL
from blockmdp.url.fix_label import LabelStandard, fix_label
from blockmdp.url.online import OnlineURL
from blockmdp.url.theory import Constants
from blockmdp.url.tsr import TSR, agreement

__all__ = ["TSR", "URL", "Constants", "LabelStandard", "OnlineURL", "agreement", "fix_label"]
