"""Zoo: models by name or path, and whether they keep the contract."""

from scool_ppl.zoo.check import Check, check_model
from scool_ppl.zoo.load import DEFAULT_MODEL, load_model, model_names, model_path

__all__ = ["DEFAULT_MODEL", "Check", "check_model", "load_model", "model_names", "model_path"]
