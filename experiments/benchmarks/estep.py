"""How long does inferring the graph take, beside the printed updates written by hand?

SCooL-SBM: the library runs its generic natural-gradient E-step on the Pyro program; the other side is (18) to (21) and (24)
in tensors, for this model only. Both make the same 20 sweeps from the same start, five groups of clients a sweep, and
both find the same graph.

    python experiments/benchmarks/estep.py
"""

from __future__ import annotations

import timing
import torch
from torch import Tensor

from scool_ppl import Evidence, NaturalGradient
from scool_ppl.infer import Joint
from scool_ppl.infer.priors import SBM

SWEEPS, BLOCKS, GROUPS, CLAMP = 20, 8, 5, 0.1


def by_hand(log_lik: Tensor, mask: Tensor, z: Tensor, alpha: Tensor, groups: list[list[Tensor]]) -> Tensor:
    """The SBM's E-step and B; E[Y] (K, K)."""
    B = torch.full((BLOCKS, BLOCKS), 0.1).fill_diagonal_(0.9).double()
    weights, gamma = torch.full_like(log_lik, 0.5), torch.ones_like(z)
    for parts in groups:
        before, on, off = weights, B.log(), (-B).log1p()
        weights = torch.sigmoid(torch.where(mask, log_lik + z @ (on - off) @ z.T, 0.0))
        gamma = alpha + z
        log_pi = gamma.digamma() - gamma.sum(1, keepdim=True).digamma()
        edges = weights * mask
        for rows in parts:
            here, there = edges[rows], edges[:, rows].T
            log_z = log_pi[rows] + here @ (z @ (on - off).T) + there @ (z @ (on - off))
            log_z += mask[rows].double() @ (z @ off.T) + mask[:, rows].T.double() @ (z @ off)
            z = z.index_copy(0, rows, log_z.softmax(1))
        pairs = z.T @ mask.double() @ z
        B = ((z.T @ edges @ z) / pairs.clamp(min=1e-10)).clamp(CLAMP, 1 - CLAMP)
        (weights - before).abs().max()  # has it converged? the library asks, too
    return weights


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


def measured(num_clients: int, repeat: int) -> timing.Row:
    log_lik, evidence, q = case(num_clients)
    mask, e_step = evidence.peers.mask, NaturalGradient(sweeps=SWEEPS, tol=0, keep=1.0, blocks=GROUPS)
    random = torch.Generator().manual_seed(0)
    groups = [list(torch.randperm(num_clients, generator=random).chunk(GROUPS)) for _ in range(SWEEPS)]
    z = q["z_logits"].softmax(-1)
    found = {}

    def library() -> None:
        prior = SBM(num_clients, BLOCKS, clamp=CLAMP, learn_alpha=False).double()
        found["library"] = e_step(Joint(prior, log_lik), evidence, q, torch.Generator().manual_seed(0)).moments["Y"]

    def hand() -> None:
        alpha = torch.ones(BLOCKS, dtype=torch.float64)
        found["hand"] = by_hand(log_lik, mask, z, alpha, groups)

    row = timing.compare(
        f"SBM, K = {num_clients}, {SWEEPS} sweeps", {"by hand": hand, "library": library}, repeat, "by hand"
    )
    row["largest difference"] = float((found["hand"] - found["library"])[mask].abs().max())
    print(f"{'':<34} E[Y] differs by at most {row['largest difference']:.1e}")
    return row


def main() -> None:
    asked = timing.options(__doc__)
    sizes = (20, 100) if asked.quick else (20, 100, 400, 1000)
    torch.set_num_threads(1)
    timing.keep("estep", [measured(size, 2 if asked.quick else asked.repeat) for size in sizes], asked.quick)


if __name__ == "__main__":
    main()
