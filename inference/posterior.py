"""The posterior over graphs of a fit: draws from q, how many edges and blocks there are, and how sure the blocks are.

A membership is unsure, too, where several blocks stand for one community: what cooperates counts as one block.

python inference/posterior.py [MODEL] [FEDERATION] [ROUNDS] [DRAWS]
"""

import sys

from rich.console import Console

from scool_ppl import EM, Clients, load_federation, load_model
from scool_ppl.workbench import posterior_table, sample_posterior


def main(model: str = "scool_sbm", spec: str = "digits", rounds: str = "20", draws: str = "1000") -> None:
    federation = load_federation(spec, seed=0)
    clients = Clients(federation)
    em = EM(load_model(model, clients.num_clients, federation=federation), clients)
    found = sample_posterior(em, em.fit(rounds=int(rounds)).state, int(draws))
    Console().print(posterior_table(found.summary(), found.clients()))


if __name__ == "__main__":
    main(*sys.argv[1:])
