"""Compare models on the same clients, initialisation and batches: one table, one figure.

python inference/compare.py [FEDERATION] [ROUNDS] [OUT] [MODEL ...]
"""

import sys

from rich.console import Console

from scool_ppl import load_federation
from scool_ppl.runs import free_name
from scool_ppl.workbench import Settings, compare, comparison, comparison_table
from scool_ppl.zoo import DEFAULT_MODEL


def main(spec: str = "digits", rounds: str = "20", out: str = "", *models: str) -> None:
    out = out or str(free_name("runs", "inference-compare"))
    names = models or ("local", "fedavg", "scool_sbm", DEFAULT_MODEL, "oracle")
    results = compare(
        [(name, {}) for name in names],
        lambda seed: load_federation(spec, seed=seed),
        Settings(rounds=int(rounds)),
        seeds=[0],
        out=out,
    )
    Console().print(comparison_table(comparison(results), seeds=1))
    print(f"graphs and curves: {out}/comparison.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
