"""`scool check`: passes on every model of models/, and says of every broken prior what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import scool_ppl.zoo.check as check
from scool_ppl import InputError
from scool_ppl.zoo import load as zoo
from scool_ppl.zoo.check import Check, check_model
from tests.helpers.command import refused, scool

RING = (zoo.models_folder() / "ring.py").read_text()
SAMPLE = 'return pyro.sample("Y", dist.Bernoulli(logits=self.b - torch.minimum(steps, self.num_clients - steps)))'
PLATES = "with self.edges:"
LEARNED = "self.b = torch.nn.Parameter(torch.tensor(1.0))"
# A membership z per client, and an edge whose log-density is the logarithm of a sum over z.
LOG_OF_SUM = """with self.clients:
            z = pyro.sample("z", OneHot(torch.ones(2) / 2))
        same = (self.receiver(z) * self.sender(z)).sum(-1)
        with self.edges:"""
GUIDE = """
    def guide(self, evidence):
        half = torch.full(evidence.peers.mask.shape, 0.5)
        with self.edges:
            {}


def build"""


def ring(*changes: tuple[str, str]) -> str:
    """The example of models/, changed."""
    text = RING
    for old, new in changes:
        assert text.count(old) == 1, f"ring.py has changed: {old!r}"
        text = text.replace(old, new)
    return text


def guided(*lines: str, fixed: bool = False) -> str:
    """ring with a guide of its own."""
    guide = ("\n\ndef build", GUIDE.format("\n            ".join(lines)))
    return ring(guide, (LEARNED, "self.b = torch.tensor(1.0)")) if fixed else ring(guide)


def report_of(tmp_path: Path, text: str) -> list[Check]:
    (tmp_path / "mine.py").write_text(text)
    return check_model(tmp_path / "mine.py")


def failures(report: list[Check]) -> dict[str, str]:
    return {line.name: line.note for line in report if line.passed is False}


@pytest.mark.parametrize("model", zoo.model_names())
def test_every_model_passes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "DRAWS", 200)  # with fewer draws the margin of error is wider, as it is computed
    report = check_model(model)
    assert not failures(report)
    assert len(report) == (13 if model == "hedge" else 12), "of a portfolio all tracks are run, too"
    assert sum(line.passed is True for line in report) >= 7


def test_the_example_is_short_and_passes_every_line() -> None:
    assert len(RING.splitlines()) <= 24
    assert all(line.passed for line in check_model("ring"))


BROKEN = {
    "no Y": (ring(('"Y"', '"graph"')), "samples a site 'Y' and returns it", "expected one named 'Y'"),
    "no return": (ring(("return pyro", "pyro")), "samples a site 'Y' and returns it", "does not return its sample"),
    "no model": (
        ring(("def model(", "def modle(")),
        "samples a site 'Y' and returns it",
        "Ring has no `model`; write one",
    ),
    "an error": (ring(("torch.minimum", "torch.minimal")), "samples a site 'Y' and returns it", "minimal"),
    "shape": (
        ring((PLATES, "with self.clients:"), (SAMPLE, 'return pyro.sample("Y", dist.Bernoulli(self.b.sigmoid()))')),
        "shape of 'Y'",
        "'Y' has shape (5,), expected (5, 5)",
    ),
    "no plates": (ring((PLATES, "if True:")), "plates of 'Y'", "sample it inside `with self.edges:`"),
    "no mask": (
        ring((PLATES, "with self.clients:"), ("num_clients - steps)))", "num_clients - steps)).to_event(1))")),
        "masked pairs",
        "edges of a client to itself change the prior",
    ),
    "guide without Y": (guided("pass"), "guide has the model's sites", "['Y'] are missing in the guide"),
    "guide with more": (
        guided('pyro.sample("Y", dist.Bernoulli(half))', 'pyro.sample("extra", dist.Bernoulli(half))'),
        "guide has the model's sites",
        "['extra'] are only in the guide",
    ),
    "nothing to learn": (
        guided('pyro.sample("Y", dist.Bernoulli(half))', fixed=True),
        "finite bound and gradients",
        "no learnable parameter, expected pyro.nn.PyroParam or torch.nn.Parameter",
    ),
    "not finite": (
        ring(("logits=self.b - ", "logits=(self.b - 1).sqrt() - ")),
        "finite bound and gradients",
        "keep probabilities inside (0, 1)",
    ),
    "numbers of numpy": (
        ring(("self.b - ", "self.b + np.random.randn() - "), ("import torch\n", "import numpy as np\nimport torch\n")),
        "the same program every time",
        "site 'Y' (Bernoulli) differs between two runs with the same torch seed",
    ),
    "random constants": (
        ring(("self.b - ", "self.b + torch.randn(()) - ")),
        "the same program every time",
        "random numbers that are no sites",
    ),
    "never": (
        ring(
            (SAMPLE, 'return pyro.sample("Y", BlockBernoulli(self.receiver(z), self.sender(z), torch.eye(2)))'),
            (PLATES, LOG_OF_SUM),
            ("import CooperationModel,", "import BlockBernoulli, CooperationModel, OneHot,"),
        ),
        "finite bound and gradients",
        "site 'Y' (BlockBernoulli) has the log-density -inf",
    ),
    "rows that do not say so": (
        ring(
            (PLATES, "with self.clients:"),
            (SAMPLE, 'return pyro.sample("Y", OneHot(logits=self.b - steps))'),
            ("import CooperationModel,", "import CooperationModel, OneHot,"),
        ),
        "samples a site 'Y' and returns it",
        'set kind = "rows" in the class',
    ),
    "one number of clients": (
        ring((LEARNED, "self.b = torch.nn.Parameter(torch.ones(8, 8) * torch.ones(num_clients, 1))")),
        "builds and looks",
        "add clients=N",
    ),
    "one number of clients, at work": (
        ring(("self.b - torch", "self.b * torch.ones(5, 5) - torch")),
        "bound against enumeration",
        "with 3 clients or fewer, whose graphs are all tried: ",
    ),
    "another number of clients": (
        ring(("Ring(num_clients)", "Ring(4)")),
        "builds and looks",
        "the model is for 4 clients, the federation has 5",
    ),
    "build fails": (ring(("return CooperationModel(", "return Cooperation(")), "builds and looks", "NameError"),
    "not a model": (ring(("return CooperationModel(", "return (")), "builds and looks", "returned tuple"),
}


@pytest.mark.parametrize("text", [pytest.param(value, id=name) for name, value in BROKEN.items()])
def test_a_broken_prior_is_caught(text: tuple[str, str, str], tmp_path: Path) -> None:
    broken, name, words = text
    found = failures(report_of(tmp_path, broken))
    assert name in found, found
    assert words in found[name]
    assert "\n" not in found[name]
    assert next(iter(found)) == name, "the first line names the cause"


def test_the_logarithm_of_a_sum_is_seen_by_enumeration_and_in_draws(tmp_path: Path) -> None:
    """Where there are too many configurations to enumerate, draws from q must do."""
    text = ring(
        (PLATES, LOG_OF_SUM),
        ("logits=self.b - torch.minimum(steps, self.num_clients - steps)", "0.05 + 0.9 * same * self.b.sigmoid()"),
        ("import CooperationModel,", "import CooperationModel, OneHot,"),
    )
    found = failures(report_of(tmp_path, text))
    assert "site 'Y' (Bernoulli) is not linear in 'z'" in found["bound against enumeration"]
    assert "site 'Y' (Bernoulli) is not linear in 'z'" in found["moment bound against draws"]
    assert "is not linear in its moments" in found["moment bound against draws"]
    assert set(found) == {"bound against enumeration", "moment bound against draws"}
    assert all("; use BlockBernoulli for edges" in line for line in found.values()), "each says what to do"


def test_the_line_of_an_error_is_named(tmp_path: Path) -> None:
    text = ring(("torch.minimum", "torch.minimal"))
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "minimal" in row)
    (note,) = failures(report_of(tmp_path, text)).values()
    assert f"mine.py, line {line}: AttributeError" in note


def test_a_model_of_a_fixed_size_is_checked_at_its_size(tmp_path: Path) -> None:
    """With hyperparameters; what cannot be enumerated is skipped."""
    text = ring((LEARNED, "self.b = torch.nn.Parameter(torch.ones(8, 8) * torch.ones(num_clients, 1) * scale)"))
    text = text.replace("num_clients: int)", "num_clients: int, scale=None)").replace(
        "Ring(num_clients)", "Ring(num_clients, scale)"
    )
    (tmp_path / "mine.py").write_text(text)
    report = check_model(tmp_path / "mine.py", 8, scale=2)
    assert not failures(report)
    assert next(line.note for line in report if line.name == "shape of 'Y'") == "8 receivers x 8 candidates"
    assert [line.name for line in report if line.passed is None] == ["bound against enumeration"]
    answer = scool("check", tmp_path / "mine.py", "clients=8", "scale=2")
    assert answer.code == 0
    assert "8 receivers x 8 candidates" in answer.out
    for wrong, words in (
        ("clients=1", "at least 2"),
        ("clients=x", "whole number"),
        ("scala=3", "did you mean 'scale'"),
    ):
        assert words in refused("check", tmp_path / "mine.py", wrong)


def test_a_prior_none_of_whose_parameters_is_used_passes(tmp_path: Path) -> None:
    """The optimiser has nothing to raise."""
    assert not failures(report_of(tmp_path, ring(("logits=self.b - ", "logits=1.0 - "))))


def test_a_guide_of_ones_own_passes(tmp_path: Path) -> None:
    guide = ('pyro.sample("Y", dist.Bernoulli(logits=self.q))',)
    text = guided(*guide).replace(
        LEARNED, f"{LEARNED}\n        self.q = torch.nn.Parameter(torch.zeros(num_clients, num_clients))"
    )
    report = report_of(tmp_path, text)
    assert not failures(report)
    skipped = [line.name for line in report if line.passed is None]
    assert skipped == ["moment bound against draws", "bound against enumeration"]


@pytest.mark.parametrize(("text", "words"), [("x = (", "SyntaxError"), ("x = 1", "has no function `build")])
def test_what_is_no_model_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        report_of(tmp_path, text)


def test_checking_leaves_the_users_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    check_model("ring")
    assert torch.equal(torch.get_rng_state(), before)
