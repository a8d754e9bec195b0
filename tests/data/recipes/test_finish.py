"""What recipes finish with: an order that says nothing of groups, regions as far as they are right, images in common."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl import Federation, load_federation, load_model
from scool_ppl.data import GENERATED, SPLITS
from scool_ppl.data.recipes import RECIPES
from scool_ppl.data.recipes.finish import regions
from tests.helpers.refusals import Case, refused, refuses

SPECS = {
    **dict.fromkeys(RECIPES, "{}:digits:clients=10,groups=5"),
    **dict.fromkeys(("iid", "dirichlet", "pathological"), "{}:digits:clients=10"),
    "rotated": "rotated:digits:clients=10,groups=4",
    "dirichlet": "dirichlet:digits:clients=10,alpha=1.0,minimum=1",
    "disjoint": "disjoint:digits:clients=10,groups=4",
    "text": "text:clients=10,groups=3,train=5,test=5",
    "sine": "sine:clients=10",
}


@pytest.mark.parametrize("recipe", [*RECIPES, *GENERATED])
def test_clients_keep_their_images_and_names_in_an_order_drawn_from_the_seed(recipe: str) -> None:
    spec = SPECS[recipe].format(recipe)
    listed = load_federation(f"{spec}{'' if spec.endswith(':') else ','}order=listed", seed=7)
    drawn = load_federation(spec, seed=7)
    assert listed.names == tuple(f"client {client}" for client in range(10))
    assert drawn.names != listed.names
    assert drawn.spec == spec
    assert load_federation(spec, seed=8).names != drawn.names != load_federation(spec, seed=9).names
    places = [listed.names.index(name) for name in drawn.names]
    assert drawn.fingerprint == listed.select(places).fingerprint, "nothing else is another"
    assert torch.equal(drawn.inputs, listed.inputs)
    for place, client in enumerate(places):
        for split in SPLITS:
            rows = getattr(drawn, split)[place]
            assert torch.equal(rows, getattr(listed, split)[client])
            assert torch.equal(drawn.labels(place, rows), listed.labels(client, rows))


def test_a_ring_of_neighbours_is_not_told_the_groups() -> None:
    """With G = 4 groups of n = 5 clients a link of a random pair is inside with chance (n - 1) / (K - 1) = 4 / 19; on the
    ring of the list it is for 16 of 20.
    """

    def inside(spec: str, seed: int) -> float:
        groups = torch.tensor(load_federation(spec, seed=seed).groups)
        return float((groups == groups.roll(1)).double().mean())

    spec = "permuted:digits:clients=20,groups=4,train=20,test=20"
    assert inside(f"{spec},order=listed", 0) == pytest.approx(16 / 20)
    found = torch.tensor([inside(spec, seed) for seed in range(40)], dtype=torch.float64)
    assert abs(float(found.mean()) - 4 / 19) < 4 * float(found.std()) / math.sqrt(40)


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.5, 1.0])
def test_a_share_of_the_regions_is_wrong(wrong: float) -> None:
    spec = f"permuted:digits:clients=20,groups=4,train=20,test=20,wrong={wrong}"
    federation = load_federation(spec, seed=3)
    assert federation.spec == spec
    assert federation.regions is not None
    assert federation.groups is not None
    assert sum(a != b for a, b in zip(federation.regions, federation.groups, strict=True)) == round(20 * wrong)
    assert set(federation.regions) <= set(federation.groups)
    assert load_federation(spec, seed=3).regions == federation.regions


def test_wrong_regions_are_of_any_other_group_and_of_anybody() -> None:
    groups = torch.arange(3).repeat(1000)
    random = torch.Generator().manual_seed(0)
    found = regions(groups, 0.3, random)
    moved = found != groups
    assert int(moved.sum()) == 900
    table = torch.zeros(3, 3).index_put((groups[moved], found[moved]), torch.ones(900), accumulate=True)
    assert float((table[~torch.eye(3, dtype=torch.bool)] - 150).abs().max()) < 4 * math.sqrt(150)


def test_regions_go_where_their_clients_go(tmp_path) -> None:
    federation = load_federation("permuted:digits:clients=4,groups=2,train=20,test=20,order=listed,wrong=0")
    plain = load_federation("permuted:digits:clients=4,groups=2,train=20,test=20,order=listed")
    assert federation.regions == (0, 0, 1, 1)
    assert plain.regions is None
    assert plain.fingerprint != federation.fingerprint
    assert federation.select([2, 0]).regions == (1, 0)
    newcomers = federation.select([3, 1])
    assert federation.select([2, 0]).join(newcomers).regions == (1, 0, 1, 0)
    assert federation.select([2, 0]).join(plain.select([1])).regions is None
    federation.save_npz(tmp_path / "mine.npz")
    assert Federation.from_npz(tmp_path / "mine.npz").regions == (0, 0, 1, 1)
    assert federation.roster.regions == (0, 0, 1, 1)


def test_a_model_is_given_the_regions() -> None:
    """The covariate of `covariate_sbm` is what its hint starts from."""
    federation = load_federation("permuted:digits:clients=6,groups=3,train=20,test=20,wrong=0.5", seed=1)
    for known in (federation, federation.roster):
        prior = load_model("covariate_sbm", 6, federation=known, blocks=3).prior
        assert prior.hint.argmax(1).tolist() == list(federation.regions or ())
    by_hand = load_model("covariate_sbm", 6, federation=federation, blocks=3, covariate="2.2.1.1.0.0").prior
    assert by_hand.hint.argmax(1).tolist() == [2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("recipe", ["permuted", "pathological", "text", "sine"])
def test_images_in_common_are_called_what_their_owners_call_them(recipe: str) -> None:
    """Everybody has, besides its own, a copy of the same rows of each of the others, and of nobody's held-out ones."""
    spec = SPECS[recipe].format(recipe)
    between = "" if spec.endswith(":") else ","
    plain, shared = load_federation(spec, seed=3), load_federation(f"{spec}{between}common=0.2", seed=3)
    assert shared.spec == f"{spec}{between}common=0.2"
    assert shared.names == plain.names
    for split in ("validation", "test"):
        assert all(map(torch.equal, getattr(shared, split), getattr(plain, split)))
    counts = [max(1, round(0.2 * len(rows))) for rows in plain.train]

    def items(client: int, rows: torch.Tensor) -> list[tuple[bytes, bytes]]:
        """What a client has as an input and its label, a row each."""
        labels = shared.labels(client, rows)
        return [(x.numpy().tobytes(), y.numpy().tobytes()) for x, y in zip(shared.inputs[rows], labels, strict=True)]

    known = []
    for client, (own, rows) in enumerate(zip(plain.train, shared.train, strict=True)):
        assert torch.equal(rows[: len(own)], own)
        received = items(client, rows[len(own) :])
        assert len(received) == sum(counts) - counts[client]
        known.append(received)
    for client, own in enumerate(plain.train):
        given = set(known[client - 1]) & set(items(client, own))
        assert len(given) == counts[client]
        for other in range(10):
            assert other == client or given <= set(known[other])
    assert len({int(row) for rows in shared.train for row in rows}) == sum(len(rows) for rows in shared.train)


REFUSED: list[Case] = [
    (lambda: load_federation("iid:digits:common=0"), "common=0.0, expected the share of their images"),
    (lambda: load_federation("iid:digits:common=1.5"), "common=1.5, expected the share of their images"),
    (lambda: load_federation("iid:digits:order=random"), "value 'random'; known: drawn, listed"),
    (lambda: load_federation("iid:digits:wrong=0.2"), "asks for regions, which are groups"),
    (lambda: load_federation("sine:wrong=0.2"), "asks for regions, which are groups"),
    (lambda: load_federation("permuted:digits:wrong=1.5"), "wrong=1.5, expected the share"),
    (lambda: load_federation("permuted:digits:ordr=listed"), "unknown option of recipe permuted 'ordr'"),
    (
        lambda: load_model("covariate_sbm", 20, federation=load_federation("permuted:digits:wrong=0"), blocks=3),
        "covariate has 20 entries, expected 20 numbers from 0 to 2",
    ),
]


@refused(REFUSED)
def test_what_cannot_be_is_one_line(call, words) -> None:
    refuses(call, words)
