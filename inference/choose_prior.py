"""Which prior explains the evidence best? Bounds of several priors, and of 1 to BLOCKS blocks, on the same evidence.

    python inference/choose_prior.py [FEDERATION] [ROUNDS] [BLOCKS]

What `scool choose` does. The evidence is that of the round after the default block model's last. A bound is below
log P(evidence | prior), so that a higher one is a reason to prefer a prior: Bayesian model choice. B and alpha are point
estimates, which cost nothing here: near ties say little, and more blocks are not forbidden to win.
"""

import sys

from scool_ppl import load_federation
from scool_ppl.workbench import Settings, choose


def main(spec: str = "digits", rounds: str = "5", blocks: str = "8") -> None:
    models = [("scool_sbm", {"blocks": count}) for count in range(1, int(blocks) + 1)]
    models += [("scool_mmsbm", {"blocks": min(4, int(blocks))}), ("ring", {})]
    found = choose(models, load_federation(spec, seed=0), Settings(rounds=int(rounds)), progress=False)
    for one in found.bounds:
        print(f"{one.name:20s} bound {one.bound:9.2f}")
    print(f"highest bound: {found.best.name}")
    for one in found.near:
        print(f"not told apart from it: {one.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
