"""A model is run once on made-up evidence before anybody trains: what is wrong is said then, and nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyro
import pytest
import torch

from scool_ppl import BlockBernoulli, CooperationModel, GraphPrior, InputError, NaturalGradient, OneHot, load_model
from scool_ppl.em.em import EM
from scool_ppl.em.rehearsal import FEW_PAIRS, rehearse, shortened
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.priors import SBM
from scool_ppl.look import CrossLoss, Near, PeerPolicy
from scool_ppl.mix import MixUpdates
from scool_ppl.zoo.load import model_names
from tests.helpers.command import TINY, scool
from tests.helpers.small import brief, clients, federation

PRIOR = """
import pyro
import pyro.distributions as dist
import torch
from scool_ppl import BlockBernoulli, CooperationModel, GraphPrior, SVIStep, likelihoods, mixing


class Mine(GraphPrior):
    def __init__(self, num_clients):
        super().__init__(num_clients)
        self.b = torch.nn.Parameter(torch.zeros(num_clients, num_clients))
        pass  # __init__

    def model(self, evidence):
        with self.edges:
            pass  # model
            return pyro.sample("Y", dist.Bernoulli(logits=self.b))

    def closed_form(self, moments, evidence):
        pass  # closed_form
        return {}

    def starts(self, evidence, log_lik, generator):
        pass  # starts
        return []
"""
GUIDE = """
    def guide(self, evidence):
        with self.edges:
            pass  # guide
            pyro.sample("Y", dist.Bernoulli(logits=self.b))
"""
BUILD = """

def build(num_clients):
    pass  # build
    prior = Mine(num_clients)
    return CooperationModel(prior, likelihoods.CrossLoss(), mixing.MixUpdates())
"""
PLACES = {
    "__init__": PRIOR + BUILD,
    "build": PRIOR + BUILD,
    "model": PRIOR + BUILD,
    "closed_form": PRIOR + BUILD,
    "starts": PRIOR + BUILD,
    "guide": PRIOR + GUIDE + BUILD.replace("MixUpdates())", "MixUpdates(), e_step=SVIStep())"),
}


def never(*arguments: object, **options: object) -> None:
    raise AssertionError("clients have trained")


@pytest.mark.parametrize("place", PLACES)
def test_an_error_in_a_users_prior_is_one_line_before_the_first_training(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scool_ppl.train.clients.Clients.train", never)
    text = PLACES[place].replace(f"pass  # {place}", "torch.ones(2, 3) @ torch.ones(2, 3)")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "torch.ones(2, 3)" in row)
    Path("mine.py").write_text(text)
    answer = scool("fit", "mine.py", *TINY, "--out", "run")
    assert answer.code == 2
    (said,) = answer.err.splitlines()
    assert f"mine.py, line {line}: RuntimeError: " in said
    assert "mat1 and mat2 shapes cannot be multiplied" in said
    assert "correct that line" in said
    assert not Path("run").exists(), "nothing is left that the next try would have to overwrite"


def test_all_of_an_error_is_shown_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever --traceback stands, and in the words that the short line names."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PLACES["model"].replace("pass  # model", "nowhere"))
    assert "--traceback" in scool("fit", "mine.py", *TINY).err
    for words in (["--traceback", "fit", "mine.py", *TINY], ["fit", "mine.py", *TINY, "--traceback"]):
        answer = scool(*words)
        assert answer.code == 2
        assert "Traceback (most recent call last)" in answer.err
        assert "NameError: name 'nowhere' is not defined" in answer.err
        assert answer.err.splitlines()[-1].startswith("scool: mine.py, line ")
    assert "--traceback" in scool("--help").out


@pytest.mark.parametrize("model", model_names())
def test_every_model_passes_and_nothing_changes(model: str) -> None:
    """Neither the prior nor anybody's random numbers: what follows has the bits that it would have had."""
    whose = clients(4)
    facts = {"truth": torch.eye(4)} if model == "oracle" else {}
    em = EM(brief(load_model(model, 4, federation=federation(4), **facts)), whose)
    every = [em, *em.beside.values()]
    before = [each.model.prior.state() for each in every]
    random = torch.get_rng_state()
    rehearse(em)
    assert torch.equal(torch.get_rng_state(), random)
    for each, state in zip(every, before, strict=True):
        after = each.model.prior.state()
        assert all(torch.equal(after[name], value) for name, value in state.items())


class Wrong(SBM):
    """Wrong in one of its methods."""

    where = "model"

    def model(self, evidence: Any) -> torch.Tensor:
        return 1 / 0 if self.where == "model" else super().model(evidence)  # type: ignore[return-value]

    def closed_form(self, moments: Any, evidence: Any) -> dict[str, torch.Tensor]:
        return 1 / 0 if self.where == "closed_form" else super().closed_form(moments, evidence)  # type: ignore[return-value]

    def starts(self, *arguments: Any) -> list[dict[str, torch.Tensor]]:
        return 1 / 0 if self.where == "starts" else super().starts(*arguments)  # type: ignore[return-value]


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("where", ["model", "closed_form", "starts"])
def test_many_clients_run_their_prior_once(where: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.em.rehearsal.FEW_PAIRS", FEW_PAIRS if few else 0)
    prior = Wrong(4, 2)
    prior.where = where
    em = EM(CooperationModel(prior, CrossLoss(), MixUpdates()), clients(4))
    with pytest.raises(InputError, match=r"test_rehearsal.py, line \d+: ZeroDivisionError"):
        rehearse(em)


class Counted(SBM):
    """Notes for how many clients it is run."""

    runs: ClassVar[list[int]] = []
    least = 0

    def model(self, evidence: Any) -> torch.Tensor:
        self.runs.append(self.num_clients)
        if self.num_clients < self.least:
            raise IndexError("a distance is missing")
        return super().model(evidence)


def counted(count: int, e_step: Any = None) -> EM:
    parts = CooperationModel(Counted(count, 2), CrossLoss(), MixUpdates())
    return EM(parts if e_step is None else parts._replace(e_step=e_step), clients(count))


def test_some_of_many_clients_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal of a thousand clients, with all pairs, is as quick as one of ninety, and has an E-step, too."""
    monkeypatch.setattr("scool_ppl.em.rehearsal.FEW_PAIRS", 16)
    Counted.runs.clear()
    rehearse(counted(6), counted)
    assert set(Counted.runs) == {4}
    assert len(Counted.runs) > 1, "an E-step"
    rehearse(counted(4), lambda _: pytest.fail("they are few themselves"))


def test_where_some_cannot_stand_for_all_these_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of which a file says for how many clients it is may fail for fewer, and at once or in its program."""

    def refused(count: int) -> EM:
        raise InputError(f"the file has 6 clients, the federation {count}")

    monkeypatch.setattr("scool_ppl.em.rehearsal.FEW_PAIRS", 16)
    for least, fewer in ((0, refused), (6, counted)):
        monkeypatch.setattr(Counted, "least", least)
        Counted.runs.clear()
        rehearse(counted(6), fewer)
        assert Counted.runs[-1] == 6
    monkeypatch.setattr(Counted, "least", 7)
    with pytest.raises(InputError, match=r"test_rehearsal.py, line \d+: IndexError: a distance is missing"):
        rehearse(counted(6), counted)


def test_what_an_e_step_cannot_do_is_said_before() -> None:
    model = load_model("latent_space", 4)._replace(e_step=NaturalGradient())  # type: ignore[call-arg, union-attr]
    with pytest.raises(InputError, match="site 'x' is continuous, NaturalGradient needs discrete"):
        rehearse(EM(model, clients(4)))  # type: ignore[arg-type]


def test_candidates_are_those_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as the policy makes them; one that cannot choose among made-up networks is no error."""
    seen: list[tuple[int, ...]] = []

    class Seeing(SBM):
        def model(self, evidence: Any) -> torch.Tensor:
            seen.append(tuple(evidence.peers.mask.shape))
            return super().model(evidence)

    class Picky(PeerPolicy):
        def __call__(self, start: Any) -> Any:
            return start.params["no such layer"]

    for peers in (Near(keep=2, explore=1), Picky()):
        rehearse(EM(CooperationModel(Seeing(6, 2), CrossLoss(), MixUpdates(), peers), clients(6)))
    assert {shape[0] for shape in seen} == {6}
    assert len({shape[1] for shape in seen}) == 2, "a table, then everybody"


def test_an_e_step_is_as_short_as_its_settings_allow() -> None:
    assert shortened(NaturalGradient(restarts=3, optimizer_steps=9)) == NaturalGradient(sweeps=1)
    assert shortened(ModeSearch()) == ModeSearch(moves=1, searches=1)
    assert shortened(len) is len


def test_a_prior_that_changes_is_a_copy() -> None:
    class Counting(GraphPrior):
        runs = 0

        def model(self, evidence: Any) -> torch.Tensor:
            self.runs += 1
            raise ValueError("stop")

    em = EM(CooperationModel(Counting(4), CrossLoss(), MixUpdates()), clients(4))
    with pytest.raises(InputError, match="ValueError: stop"):
        rehearse(em)
    assert em.model.prior.runs == 0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_bound_that_is_no_number_is_said_before(value: float) -> None:
    class Never(SBM):
        def model(self, evidence: Any) -> torch.Tensor:
            with self.clients:
                z = pyro.sample("z", OneHot(torch.ones(2) / 2))
            with self.edges:
                edge = BlockBernoulli(self.receiver(z), self.sender(z), torch.full((2, 2), value))
                return pyro.sample("Y", edge)

        def closed_form(self, moments: Any, evidence: Any) -> dict[str, torch.Tensor]:
            return {}

    with pytest.raises(InputError, match=r"the bound of Never is .* on random evidence, expected a finite number"):
        rehearse(EM(CooperationModel(Never(4, 2), CrossLoss(), MixUpdates()), clients(4)))
