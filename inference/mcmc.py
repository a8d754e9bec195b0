"""How sure is the guide? Places of clients and the coefficient of latent_space, drawn by NUTS and by SVI's mean field.

python inference/mcmc.py [FEDERATION] [ROUNDS] [DRAWS] [CHAINS]

Both see the evidence of the round after the last; NUTS has the graph summed out. Places can be turned and reflected as a
whole, so that distances are compared. r_hat near 1 says that the chains agree; ess is the number of independent draws.
"""

import sys

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, Predictive
from pyro.nn import PyroSample
from pyro.ops.stats import effective_sample_size, split_gelman_rubin

from scool_ppl import EM, Clients, CooperationModel, load_federation, load_model

GROUPS = "permuted:digits:clients=12,groups=3,train=50"


def main(spec: str = GROUPS, rounds: str = "5", draws: str = "200", chains: str = "2") -> None:
    clients = Clients(load_federation(spec, seed=0))
    size = clients.num_clients
    model = load_model("latent_space", size)
    assert isinstance(model, CooperationModel)
    model.prior.b = PyroSample(dist.Normal(2.0, 2.0))  # a latent with a prior, in place of a number that is learned
    em = EM(model, clients)
    state = em.fit(rounds=int(rounds)).state
    start = em.round_start(state)
    look = em.look(start, em.train(state, start).trained.params)

    program, found = em.joint(state, look), []
    for chain in range(int(chains)):
        pyro.set_rng_seed(chain)
        mcmc = MCMC(NUTS(program, max_tree_depth=5), int(draws), warmup_steps=int(draws) // 2, disable_progbar=True)
        mcmc.run()
        found.append(mcmc.get_samples() | Predictive(program, mcmc.get_samples())())
    sampled = {name: torch.stack([chain[name] for chain in found]) for name in found[0]}

    posterior, _ = em.infer(state, look.evidence, look.joint)
    q = {site: dist.Normal(posterior.q[f"{site}_loc"], posterior.q[f"{site}_scale"]) for site in ("b", "x")}
    guided = {site: factor.sample(torch.Size([1000])) for site, factor in q.items()}

    pairs = [(0, other) for other in (1, size // 2, size - 1)]
    print(f"{'':>20} {'NUTS':>7} {'sd':>6} {'r_hat':>6} {'ess':>5} {'SVI':>8} {'sd':>6}")
    for name, pair in [("coefficient b", None), *((f"distance {i} to {j}", (i, j)) for i, j in pairs)]:
        ours, theirs = (
            values["b"] if pair is None else (values["x"][..., pair[0], :] - values["x"][..., pair[1], :]).norm(dim=-1)
            for values in (sampled, guided)
        )
        quality = f"{split_gelman_rubin(ours):6.2f} {effective_sample_size(ours):5.0f}"
        print(f"{name:>20} {ours.mean():7.2f} {ours.std():6.2f} {quality} {theirs.mean():8.2f} {theirs.std():6.2f}")
    apart = (sampled["Y"].mean((0, 1)) - posterior.moments["Y"])[look.evidence.peers.mask].abs()
    print(f"edges: probabilities differ by {apart.mean():.3f} in the mean, {apart.max():.3f} at most")


if __name__ == "__main__":
    main(*sys.argv[1:])
