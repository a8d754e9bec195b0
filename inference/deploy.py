"""A portfolio of one's own: two cooperation models beside local-only training, and what each client relies on.

python inference/deploy.py [FEDERATION] [ROUNDS]
"""

import sys

from scool_ppl import EM, Clients, CooperationModel, load_federation, load_model
from scool_ppl.deploy import Portfolio, Single, Stack, alone, gains


def main(spec: str = "digits", rounds: str = "20") -> None:
    federation = load_federation(spec, seed=0)
    clients = Clients(federation)
    tracks = {"local": alone(clients.num_clients)}
    for name in ("scool_sbm", "fedavg"):
        model = load_model(name, clients.num_clients, federation=federation)
        assert isinstance(model, CooperationModel)  # it may be a portfolio itself, which is no track
        tracks[name] = model
    portfolio = Portfolio(tracks, shown="scool_sbm", rule=Stack(alpha=20))
    em = EM(portfolio, clients, seed=0)
    fit = em.fit(rounds=int(rounds))
    for candidate, weight in zip(fit.deployment.candidates, fit.deployment.weights.mean(0).tolist(), strict=True):
        print(f"{weight:6.1%} {candidate}")
    local = fit.state.beside["local"].params
    for name, deployment in {"stacked": fit.deployment, "one network": em.deploy(fit.state, Single())}.items():
        over = gains(clients, deployment.ensemble, local)
        accuracy = deployment.evaluate(clients).score.mean()
        print(
            f"{name}: accuracy {accuracy:.3f}, {over.gain.mean():+.3f} over local, {over.harmed():.0%} harmed beyond noise"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
