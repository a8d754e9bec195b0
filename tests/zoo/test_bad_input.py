"""Models by name refuse hyperparameters and facts that they cannot use in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from scool_ppl import (
    Federation,
    load_model,
)
from scool_ppl.errors import InputError
from scool_ppl.zoo.load import hyperparameters, model_names
from tests.helpers.refusals import Case, refused, refuses

NAN, INF = math.nan, math.inf
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y, OWNER = torch.arange(24) % 3, torch.arange(24) // 8
SPLIT = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2] * 3)
TINY = Federation.from_arrays(X, Y, OWNER, split=SPLIT)


REFUSED: list[Case] = [
    (lambda: load_model(None, 3), "model is None, expected a name or the path"),  # type: ignore[arg-type]
    (lambda: load_model("scool_sbn", 3), "unknown model 'scool_sbn'; known: "),
    (lambda: load_model("local", 0), "num_clients is 0, expected a whole number of at least 1"),
    (lambda: load_model("local", 2.5), "num_clients is 2.5"),  # type: ignore[arg-type]
    (lambda: load_model("local", "3"), "num_clients is '3'"),  # type: ignore[arg-type]
    (lambda: load_model("fedavg", 3, federation="digits"), "federation is 'digits', expected a Federation"),  # type: ignore[arg-type]
    (lambda: load_model("fedavg", 4, federation=TINY), "the federation has 3 clients, num_clients is 4"),
    (lambda: load_model("oracle", 3), "'oracle' needs truth"),
    (
        lambda: load_model("oracle", 3, truth=torch.ones(2, 2)),
        "truth is of shape (2, 2), expected a tensor (3, 3)",
    ),
    (lambda: load_model("oracle", 3, truth=torch.ones(3)), "truth is of shape (3,), expected a tensor (3, 3)"),
    (
        lambda: load_model("fedavg", 3, samples=torch.ones(3, 3)),
        "samples is of shape (3, 3), expected a tensor (3,), an entry for each client",
    ),
    (lambda: load_model("fedavg", 3, samples=[1, 2, 3]), "samples is list, expected a tensor"),
    (lambda: load_model("l2c", 3, decay=-0.1), "decay is -0.1, expected at least 0"),
    (lambda: load_model("meta_l2c", 3, frozen=True), "meta_l2c has frozen=True and no encoder, expected the file"),
    (lambda: load_model("scool_sbm", 3, block=4), "did you mean 'blocks'?"),
    (lambda: load_model("scool_sbm", 3, blocks=2.5), "blocks of scool_sbm is 2.5"),
    (lambda: load_model("scool_sbm", 3, blocks="3"), "blocks of scool_sbm is '3', expected a whole number"),
    (lambda: load_model("scool_sbm", 3, blocks=0), "expected at least one block"),
    (lambda: load_model("scool_sbm", 3, reference="midpiont"), "did you mean 'midpoint'?"),
    (lambda: load_model("scool_sbm", 3, clip=0.0), "clip=0.0, expected a positive radius"),
    (lambda: load_model("scool_sbm", 3, keep=0), "keep=0"),
    (lambda: load_model("dpsgd", 3, topology="rign"), "did you mean 'ring'?"),
    (lambda: load_model("dpsgd", 3, groups=0), "groups=0"),
    (
        lambda: load_model("dpsgd", 3, mix="before", clients_rate=0.0),
        "a step of plain SGD, expected one with a rate",
    ),
    (lambda: load_model("fedprox", 3, mu=-1.0), "pull=-1.0, expected a positive number, or 0"),
    (lambda: load_model("ditto", 3, strength=-1.0), "strength is -1.0, expected at least 0"),
    (lambda: load_model("dada", 3, sparsity=-1.0), "sparsity=-1.0: expected positive numbers"),
    (lambda: load_model("pfedgraph", 3, lam=-1.0), "lam is -1.0, expected at least 0"),
    (lambda: load_model("fc", 3, share=2.0), "share=2.0, steps=10: expected a share in"),
    (lambda: load_model("latent_space", 3, spread=-1.0), "spread is -1.0"),
    (lambda: load_model("covariate_sbm", 3, covariate="a.b.c"), "covariate is 'a.b.c', expected whole numbers"),
    (lambda: load_model("covariate_sbm", 3, covariate="0.0"), "covariate has 2 entries, expected 3"),
    (lambda: load_model("meta_l2c", 3, encoder="nowhere"), "cannot read an encoder from 'nowhere'"),
]


@refused(REFUSED)
def test_one_line_says_what_is_wrong(call: Any, words: str) -> None:
    refuses(call, words)


@pytest.mark.parametrize("value", [NAN, INF, "x"], ids=str)
@pytest.mark.parametrize("model", model_names())
def test_no_hyperparameter_takes_what_is_no_number(model: str, value: object) -> None:
    """Every number of every model, by its own signature."""
    facts = {"truth": torch.zeros(3, 3)} if model == "oracle" else {}
    for name, parameter in hyperparameters(model).items():
        if isinstance(parameter.default, bool | int | float):
            with pytest.raises(InputError, match=f"hyperparameter {name} of {model} is "):
                load_model(model, 3, **facts, **{name: value})  # type: ignore[arg-type]
