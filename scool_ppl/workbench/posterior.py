"""The posterior of the graph as draws: of its edges, its blocks, and of what the prior expects of each pair."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.codec import Row
from scool_ppl.base.files import csv_text, replacing, write_npz
from scool_ppl.base.randomness import generator, seeded
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.graph.blocks import by_appearance, merged
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.look.evidence import Evidence
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.resume import open_run

MOST = 2**31
"""Pairs in all draws together."""
RUNS = 100
"""Draws of Z for which the prior is run."""


class Interval(NamedTuple):
    """Mean of the draws, and the ends between which 95 % of them are."""

    mean: float
    low: float
    high: float


class GraphPosterior(NamedTuple):
    """Draws of the graph from q(Y, Z), and what they come to.

    graphs: (S, K, M) bool, by receiver and candidate, as in `graph`, whose weights are E_q[Y].
    blocks: (S, K) the block of each client, where q has memberships; blocks that cooperate in a draw are one, as in
        CooperationGraph.blocks.
    expected: (K, K) P(Y_ij | blocks, positions, ...) by the prior alone, averaged over draws of these: what is believed
        of a pair without its own evidence. None where the prior is a function of the evidence.
    """

    graph: CooperationGraph
    graphs: Tensor
    blocks: Tensor | None
    expected: Tensor | None

    @property
    def probability(self) -> Tensor:
        """(K, K): the share of draws in which i learns from j."""
        return self.graph.peers.dense(self.graphs.double().mean(0))

    @property
    def together(self) -> Tensor | None:
        """(K, K): the share of draws in which i and j are in one block."""
        if self.blocks is None:
            return None
        shares = torch.zeros(2 * self.blocks.shape[1:], dtype=torch.float64)
        for labels in self.blocks:
            shares += labels[:, None] == labels
        return shares / len(self.blocks)

    @property
    def edges(self) -> Interval:
        """How many edges the graph has."""
        return interval(self.graphs.flatten(1).sum(1))

    @property
    def teachers(self) -> list[Interval]:
        """From how many others each client learns."""
        counts = self.graphs.sum(2)
        return [interval(counts[:, client]) for client in range(counts.shape[1])]

    @property
    def block_count(self) -> Interval | None:
        """How many blocks there are."""
        return None if self.blocks is None else interval(self.blocks.max(1).values + 1)

    @property
    def is_sure(self) -> bool:
        """Are all draws the same graph? So they are where q is a point mass."""
        return bool((self.graphs == self.graphs[:1]).all())

    def clients(self) -> list[Row]:
        """A row a client: from how many it learns, its block, and how sure that is."""
        own, together = self.graph.blocks().tolist(), self.together
        rows: list[Row] = []
        for client, (name, teachers) in enumerate(zip(self.graph.names, self.teachers, strict=True)):
            row: Row = {"client": name, "teachers": teachers.mean, "low": teachers.low, "high": teachers.high}
            if together is not None:
                mates = [other for other, block in enumerate(own) if block == own[client] and other != client]
                row["block"] = own[client]
                row["with its block"] = float(together[client, mates].mean()) if mates else None
            rows.append(row)
        return rows

    def summary(self) -> Row:
        """The numbers that are about the whole graph."""
        count = self.block_count
        return {
            "draws": len(self.graphs),
            "edges": self.edges._asdict(),
            "blocks": None if count is None else count._asdict(),
            "edges above": {level: int((self.graph.weights > level).sum()) for level in (0.5, 0.95, 0.99)},
        }

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write posterior.npz, posterior.json, posterior.csv and posterior.png into a folder, replacing older ones."""
        from scool_ppl.plots.posterior import draw_posterior
        from scool_ppl.plots.style import save_figure

        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to '{path}': {error.strerror}; choose another --out") from error
        arrays: dict[str, Any] = {
            "names": np.array(self.graph.names),
            "graphs": self.graphs.numpy(),
            "senders": self.graph.peers.columns().expand(self.graphs.shape[1:]).numpy(),
            "probability": self.probability.numpy(),
        }
        together = self.together
        for name, value in {"blocks": self.blocks, "together": together, "expected": self.expected}.items():
            if value is not None:
                arrays[name] = value.numpy()
        write_npz(path / "posterior.npz", arrays, compressed=True)
        Run(path).write_json("posterior.json", self.summary())
        with replacing(path / "posterior.csv") as temporary:
            temporary.write_text(csv_text(self.clients()) + "\n")
        save_figure(draw_posterior(self.graph, self.probability, self.expected, together), path / "posterior.png")
        return path


def interval(values: Tensor) -> Interval:
    """Of draws (S,)."""
    low, high = values.double().quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(float(values.double().mean()), low, high)


def sample_posterior(em: EM, state: EMState, draws: int = 1000, seed: int = 0) -> GraphPosterior:
    """Draws of Y and of Z from the mean field q that a round has left, and what the prior says of Y given each Z.

    A prior that reads the evidence of its round cannot be run without it, and a guide of one's own need not be a mean
    field: of such only the graph is drawn.
    """
    check_whole("draws", draws)
    graph = em.graph(state)
    if graph.kind == "point":
        raise InputError(
            f"the graph of {type(em.model.prior).__name__} is one table of weights, which has no posterior to draw from; "
            "take a model that samples 'Y', e.g. scool_sbm"
        )
    if graph.components is not None:
        raise InputError(
            f"clients of {type(em.model.prior).__name__} choose among components, of which each round's choice is in the "
            "graph already; expected a model whose edges join clients, e.g. scool_sbm"
        )
    size = graph.weights.numel()
    if draws * size > MOST:
        raise InputError(f"{draws} draws of {size} pairs were asked for, expected {MOST // size} draws at most")
    graphs = graph.sample(draws, seed)
    sites = latent_draws(em, state, graph, draws, seed)
    if sites is None:
        return GraphPosterior(graph, graphs, None, None)
    expected = prior_edges(em.model.prior, graph, {name: value[:RUNS] for name, value in sites.items()})
    members, blocks = sites.get("z"), None
    if members is not None and members.dim() == 3 and members.shape[1] == graph.num_clients:
        labels = [by_appearance(one.tolist()) for one in members.argmax(2)]
        blocks = torch.stack(
            [merged(one, drawn.double(), graph.peers) for one, drawn in zip(labels, graphs, strict=True)]
        )
    return GraphPosterior(graph, graphs, blocks, expected)


def latent_draws(em: EM, state: EMState, graph: CooperationGraph, draws: int, seed: int) -> dict[str, Tensor] | None:
    """Draws (S, ...) of all sites of q but Y, by name; None where the guide cannot be set up without the evidence."""
    prior = em.model.prior
    prior.load_state_dict(state.prior)
    guide = guide_of(prior, Joint(prior, torch.zeros(graph.weights.shape)))
    if prior.needs or not isinstance(guide, AutoMeanField):
        return None
    guide.setup(Evidence(graph.peers))
    guide.load(state.q)
    with seeded(generator(seed, "posterior")), torch.no_grad():
        return {name: guide.distribution(name).sample((draws,)) for name in guide.sites if name != "Y"}


def prior_edges(prior: GraphPrior, graph: CooperationGraph, sites: dict[str, Tensor]) -> Tensor:
    """The mean (K, K) of P(Y_ij = 1 | Z) by the prior over draws of Z (S, ...)."""
    runs = len(next(iter(sites.values()))) if sites else 1
    evidence, total = Evidence(graph.peers), torch.zeros(graph.weights.shape, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for run in range(runs):
            program = poutine.condition(prior, {name: value[run] for name, value in sites.items()})
            site = poutine.trace(program).get_trace(evidence).nodes["Y"]
            total += site["fn"].mean.expand(total.shape)
    return graph.peers.dense(total / runs)


def posterior_of(
    path: str | os.PathLike[str],
    draws: int = 1000,
    seed: int = 0,
    *,
    data_root: str | Path | None = None,
    download: bool = False,
) -> GraphPosterior:
    """The posterior that the last round of a run of `scool fit` has left."""
    em, _, state = open_run(path, device="cpu", data_root=data_root, download=download)
    return sample_posterior(em, state, draws, seed)
