"""Texts: a folder of them, what their tokens are."""

from scool_ppl.data.texts.folder import texts
from scool_ppl.data.texts.tokens import Tokens, tokens_of

__all__ = ["Tokens", "texts", "tokens_of"]
