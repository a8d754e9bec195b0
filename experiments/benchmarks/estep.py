"""How long does inferring the graph take, beside the printed updates written by hand?

The library runs its generic natural-gradient E-step on the Pyro program; the other side is (18) to (21) and (24) of SCooL
in tensors, for this program only. Both make 20 sweeps from the same start, five groups of clients a sweep, and find the
same graph. SCooL-SBM, and a prior of one's own: blocks with a known hint in place of the Dirichlet.

    python experiments/benchmarks/estep.py
"""

from __future__ import annotations

from collections.abc import Callable

import pyro
import timing
import torch
from torch import Tensor

from scool_ppl import Evidence, GraphPrior, NaturalGradient, OneHot
from scool_ppl.infer import Joint
from scool_ppl.infer.priors import SBM

SWEEPS, BLOCKS, GROUPS, CLAMP = 20, 8, 5, 0.1


class Hinted(SBM):
    """The SBM with z_i drawn around a known hint."""

    def __init__(self, hint: Tensor) -> None:
        super().__init__(len(hint), BLOCKS, clamp=CLAMP, learn_alpha=False)
        self.register_buffer("hint", hint)

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            z = pyro.sample("z", OneHot(logits=self.hint))
        with self.edges:
            return self.sample_edges(self.receiver(z), self.sender(z))


def by_hand(
    log_lik: Tensor, mask: Tensor, z: Tensor, log_prior: Callable[[Tensor], Tensor], groups: list[list[Tensor]]
) -> Tensor:
    """Sweeps over E[Y], what is known of z without the graph, z in groups of clients, and B; E[Y] (K, K)."""
    B = torch.full((BLOCKS, BLOCKS), 0.1).fill_diagonal_(0.9).double()
    weights = torch.full_like(log_lik, 0.5)
    for parts in groups:
        before, on, off = weights, B.log(), (-B).log1p()
        weights = torch.sigmoid(torch.where(mask, log_lik + z @ (on - off) @ z.T, 0.0))
        log_pi, edges = log_prior(z), weights * mask
        for rows in parts:
            log_z = log_pi[rows] + edges[rows] @ (z @ (on - off).T) + edges[:, rows].T @ (z @ (on - off))
            log_z += mask[rows].double() @ (z @ off.T) + mask[:, rows].T.double() @ (z @ off)
            z = z.index_copy(0, rows, log_z.softmax(1))
        pairs = z.T @ mask.double() @ z
        B = ((z.T @ edges @ z) / pairs.clamp(min=1e-10)).clamp(CLAMP, 1 - CLAMP)
        (weights - before).abs().max()  # has it converged? the library asks, too
    return weights


def dirichlet(z: Tensor) -> Tensor:
    """E[log pi] under Dirichlet(1 + z)."""
    gamma = 1 + z
    return gamma.digamma() - gamma.sum(1, keepdim=True).digamma()


def case(num_clients: int) -> tuple[Tensor, Evidence, dict[str, Tensor]]:
    """Losses of clients in four groups, as log-odds; the evidence; and a start that is softly right."""
    random = torch.Generator().manual_seed(num_clients)
    group = torch.arange(num_clients) % 4
    noise = torch.rand(num_clients, num_clients, generator=random, dtype=torch.float64)
    loss = (group[:, None] != group).double() + 0.8 * noise
    start = 0.5 * torch.nn.functional.one_hot(group, BLOCKS).double() + 0.5 / BLOCKS
    q = {
        "z_logits": start.log(),
        "pi_concentration": torch.ones(num_clients, BLOCKS, dtype=torch.float64),
        "Y_logits": torch.zeros_like(loss),
    }
    return 5 * (0.9 - loss), Evidence.given(loss=loss), q


def measured(num_clients: int, hinted: bool, repeat: int) -> timing.Row:
    log_lik, evidence, q = case(num_clients)
    mask = evidence.peers.mask
    random = torch.Generator().manual_seed(0)
    groups = [list(torch.randperm(num_clients, generator=random).chunk(GROUPS)) for _ in range(SWEEPS)]
    z, hint = q["z_logits"].softmax(-1), q["z_logits"].log_softmax(-1)
    known: Callable[[Tensor], Tensor] = (lambda z: hint) if hinted else dirichlet
    found: dict[object, Tensor] = {}

    def library(sweeps: int) -> None:
        e_step = NaturalGradient(sweeps=sweeps, tol=0, keep=1.0, blocks=GROUPS)
        prior: GraphPrior = Hinted(hint) if hinted else SBM(num_clients, BLOCKS, clamp=CLAMP, learn_alpha=False)
        joint = Joint(prior.double(), log_lik)
        found[sweeps] = e_step(joint, evidence, q, torch.Generator().manual_seed(0)).moments["Y"]

    def hand() -> None:
        found["hand"] = by_hand(log_lik, mask, z, known, groups)

    name = f"{'own prior' if hinted else 'SBM'}, K = {num_clients}"
    sides = {"by hand": hand, "library": lambda: library(SWEEPS), "library, one sweep only": lambda: library(1)}
    row = timing.compare(name, sides, repeat, "by hand")
    row["largest difference of E[Y]"] = float((found["hand"] - found[SWEEPS])[mask].abs().max())
    print(f"{name:<36} E[Y] differs by at most {row['largest difference of E[Y]']:.1e}")
    return row


def main() -> None:
    asked = timing.options(__doc__)
    torch.set_num_threads(1)
    sizes = (20, 100) if asked.quick else (20, 100, 400, 1000)
    rows = [measured(size, hinted, asked.repeat) for hinted in (False, True) for size in sizes]
    timing.keep("estep", rows, asked.quick)


if __name__ == "__main__":
    main()
