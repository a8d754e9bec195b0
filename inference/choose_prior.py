"""Which prior explains the evidence best? Bounds of several priors, and of 1 to BLOCKS blocks, on the same evidence.

    python inference/choose_prior.py [FEDERATION] [ROUNDS] [BLOCKS]

The evidence is that of the round after the default model's last. A bound is below log P(evidence | prior), so that a
higher one is a reason to prefer a prior: Bayesian model choice. B and alpha are point estimates, which cost nothing
here: near ties say little, and more blocks are not forbidden to win.
"""

import sys

from scool_ppl import EM, Clients, Evidence, NaturalGradient, load_federation, load_model
from scool_ppl.base import generator
from scool_ppl.infer import Posterior
from scool_ppl.infer.priors import MMSBM, SBM, GraphPrior, Joint


def best_bound(joint: Joint, evidence: Evidence) -> Posterior:
    """E-steps from one another's end, with the prior's parameters, until the bound has settled."""
    step = NaturalGradient(sweeps=100, keep=1.0)
    found = step(joint, evidence, {}, generator(0, "choose"))
    for number in range(50):
        further = step(joint, evidence, found.q, generator(number, "choose"))
        if further.elbo - found.elbo < 1e-3:
            break
        found = further
    return found


def main(spec: str = "digits", rounds: str = "5", blocks: str = "8") -> None:
    federation = load_federation(spec, seed=0)
    clients = Clients(federation)
    em = EM(load_model("scool_sbm", clients.num_clients), clients)
    state = em.fit(rounds=int(rounds)).state
    start = em.round_start(state)
    evidence, joint, _ = em.look(start, em.train(state, start).trained.params)
    size = clients.num_clients
    priors: dict[str, GraphPrior] = {f"SBM, {g} blocks": SBM(size, g) for g in range(1, int(blocks) + 1)}
    mixed = min(4, int(blocks))
    priors |= {f"MMSBM, {mixed} blocks": MMSBM(size, mixed), "ring": load_model("ring", size).prior}
    rows = []
    for name, prior in priors.items():
        found = best_bound(Joint(prior.double(), joint.log_lik), evidence)
        rows.append((name, found.elbo))
    for name, bound in rows:
        print(f"{name:16s} bound {bound:9.2f}")
    print(f"highest bound: {max(rows, key=lambda row: row[1])[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
