"""Privacy of single images: what private clients promise, what they have spent, and losses that they hand out noised."""

from scool_ppl.train.privacy.account import Account
from scool_ppl.train.privacy.promise import Privacy

__all__ = ["Account", "Privacy"]
