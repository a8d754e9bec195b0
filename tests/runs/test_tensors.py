"""Files of tensors: what is written in pieces is what safetensors reads, and rows come back to who holds them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scool_ppl.graph import stacks
from scool_ppl.graph.stacks import is_shared, shared, unshared
from scool_ppl.runs.tensors import load, save, sent
from tests.helpers.shared import only_rank
from tests.helpers.small import normal

PLAIN = {
    "state/params/0.weight": normal(5, 3, 2),
    "state/params/0.bias": normal(5, 3).float(),
    "state/optimizer/momentum_buffer/0.bias": normal(5, 3, seed=2).bfloat16(),
    "state/beside/local/params/0.bias": normal(5, 3, seed=3),
    "state/optimizer/started": torch.tensor([True, False, True, True, True]),
    "state/moments/Y": normal(5, 5),
    "state/memory/global/value": normal(3),
    "state/peers/mask": torch.ones(5, 5, dtype=torch.bool),
    "none": torch.zeros(0, dtype=torch.long),
}
STACKS = [name for name, value in PLAIN.items() if "params" in name or "momentum" in name]


def test_shared_stacks_go_to_a_file_and_come_from_it_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "PIECE", 2 * 6 * 8)
    with only_rank() as mesh:
        some = {name: shared(value, 5, mesh) if name in STACKS else value for name, value in PLAIN.items()}
        assert not sent(some), "the only rank writes"
        save(tmp_path / "shared", some)
        save(tmp_path / "plain", PLAIN)
        assert (tmp_path / "plain").stat().st_mode == (tmp_path / "shared").stat().st_mode
        for path in (tmp_path / "shared", tmp_path / "plain"):
            assert {name: (value.dtype, value.tolist()) for name, value in load_file(path).items()} == {
                name: (value.dtype, value.tolist()) for name, value in PLAIN.items()
            }
            found = load(path, some[STACKS[0]])
            assert sorted(found) == sorted(PLAIN)
            assert sorted(name for name, value in found.items() if is_shared(value)) == sorted(STACKS)
            assert all(torch.equal(unshared(value), PLAIN[name]) for name, value in found.items())
