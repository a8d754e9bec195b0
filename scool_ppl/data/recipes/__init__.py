"""Recipes: labels and inputs become index lists, and the true graph."""

from collections.abc import Callable

from scool_ppl.data.recipes.by_group import disjoint, grouped, latent, permuted, rotated, shuffled_targets
from scool_ppl.data.recipes.by_label import dirichlet, iid, pathological
from scool_ppl.data.recipes.splitting import Partition, Pool

__all__ = ["RECIPES", "Partition", "Pool"]

RECIPES: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "pathological": pathological,
    "groups": grouped,
    "disjoint": disjoint,
    "permuted": permuted,
    "rotated": rotated,
    "latent": latent,
    "shuffled-targets": shuffled_targets,
}
