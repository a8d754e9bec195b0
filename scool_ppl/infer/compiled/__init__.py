"""Programs whose log joint is linear in its moments, without Pyro: recorded as sums of products, which are contracted."""

from scool_ppl.infer.compiled.compiled import Compiled, check_derivatives, check_same
from scool_ppl.infer.compiled.forms import UnsupportedError

__all__ = ["Compiled", "UnsupportedError", "check_derivatives", "check_same"]
