"""Adapters are low-rank changes of one body that all clients have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from scool_ppl import EM, InputError, Schedule, load_federation, load_model
from scool_ppl.deploy.blueprint import Blueprint, client_network
from scool_ppl.train import Clients, Plan, network_of
from scool_ppl.train.networks import lora as module

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

SPEC = "lora:rank=2,alpha=6,layers=1,width=0.5"


def federation(clients: int = 3):
    return load_federation(f"text:clients={clients},groups=1,train=6,test=4,length=8")


def made(executor: str = "stacked", clients: int = 3, spec: str = SPEC, **options: object) -> Clients:
    return Clients(federation(clients), network_of(federation(clients), spec), executor=executor, **options)


def saved(folder: Path, vocabulary: int = 17, length: int = 8) -> nn.Module:
    """A model that somebody has trained and saved."""
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=length, n_embd=8, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    return model.eval()


def test_all_but_the_adapter_is_frozen_and_the_executors_agree() -> None:
    ends = []
    for executor in ("stacked", "loop"):
        clients = made(executor, dtype=torch.float64)
        assert clients.init(0).keys() == {name for name in clients.parameters() if ".lora_" in name}
        assert all(".lora_" not in name for name in clients.parts.frozen)
        assert clients.bytes_per_model == 8 * 2 * (32 + 3 * 32)
        params = {name: value + 0.1 for name, value in clients.init(0).items()}
        ends.append(clients.train(params, None, Plan(epochs=2)))
    assert not ends[0].params.keys() - ends[1].params.keys()
    for name, value in ends[0].params.items():
        torch.testing.assert_close(value, ends[1].params[name], rtol=0, atol=1e-12)
    torch.testing.assert_close(ends[0].loss, ends[1].loss)


def test_cobo_pulls_adapters_and_the_executors_agree() -> None:
    ends = []
    for executor in ("stacked", "loop"):
        clients = made(executor, dtype=torch.float64)
        em = EM(load_model("cobo", 3, domain="simplex", rho=0.5), clients, Schedule(1, 1), seed=0)
        state, _ = em.step(em.init())
        alone = clients.train(state.params, None, Plan(epochs=1, round=1)).params
        state, info = em.step(state)
        assert any(not torch.allclose(value, alone[name], atol=1e-9) for name, value in info.trained.items())
        assert not torch.allclose(state.moments["Y"], torch.full((3, 3), 0.5).double().fill_diagonal_(0), atol=1e-9)
        ends.append(state)
    assert ends[0].params.keys() == {name for name in clients.parameters() if ".lora_" in name}
    for name, value in ends[0].params.items():
        torch.testing.assert_close(value, ends[1].params[name], rtol=0, atol=1e-10)
    torch.testing.assert_close(ends[0].moments["Y"], ends[1].moments["Y"], rtol=0, atol=1e-10)


def test_a_folder_is_a_body_and_an_adapter_is_a_change_of_its_weights(tmp_path: Path) -> None:
    """W + (alpha / rank) B A put into the saved model by hand predicts what the adapted one does."""
    model = saved(tmp_path)
    clients = made(spec=f"lora:{tmp_path}:rank=2,alpha=6", dtype=torch.float64)
    frozen = {name.removeprefix("model.").replace(".base_layer", ""): v for name, v in clients.frozen.items()}
    told = dict(model.named_parameters())
    assert frozen.keys() == told.keys()
    assert all(value.equal(told[name].double()) for name, value in frozen.items())
    random = torch.Generator().manual_seed(0)
    start = clients.init(0)
    params = {name: torch.randn(value.shape, generator=random).double() for name, value in start.items()}
    alone, mask = clients.predict(start)
    outputs, _ = clients.predict(params)
    attention = model.double().transformer.h[0].attn.c_attn
    weight = attention.weight.detach().clone()
    for client in range(3):
        tokens = clients.federation.inputs[clients.federation.test[client]]
        with torch.no_grad():
            attention.weight.copy_(weight)
            torch.testing.assert_close(alone[client][mask[client]], model(input_ids=tokens).logits)
            a, b = (next(v for n, v in params.items() if f"lora_{part}" in n)[client] for part in "AB")
            attention.weight.copy_(weight + 6 / 2 * (b @ a).T)
            torch.testing.assert_close(outputs[client][mask[client]], model(input_ids=tokens).logits)


def test_many_clients_cost_one_body_and_an_adapter_each() -> None:
    """Bytes of all tensors that there are, before and after."""

    def held() -> int:
        gc.collect()
        found = [each.untyped_storage() for each in _tensors()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in found}.values())

    data = federation(12)
    network = network_of(data, "lora:rank=2,layers=2,width=4")
    before = held()
    clients = Clients(data, network, executor="stacked")
    state = EM(load_model("fedavg", 12), clients).init()
    grown = held() - before
    body, adapter = sum(value.nbytes for value in clients.frozen.values()), clients.bytes_per_model
    assert body > 100 * adapter
    # Adapters of the clients, of the modules of both executors and their threads, and small change.
    spare = 4 + 2 * torch.get_num_threads()
    assert body + 12 * adapter <= grown <= body + (12 + spare) * adapter + 2**16
    assert sum(value.nbytes for value in state.params.values()) == 12 * adapter


def _tensors() -> Iterator[torch.Tensor]:
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, nn.Parameter):
            yield each


def test_a_round_with_a_body_from_a_folder_is_delivered_whole(tmp_path: Path) -> None:
    saved(tmp_path)
    clients = made(spec=f"lora:{tmp_path}:rank=2")
    em = EM(load_model("scool_sbm", 3), clients, Schedule(warmup_epochs=1))
    state, info = em.step(em.init())
    assert info.bytes_received.max() <= 2 * clients.bytes_per_model
    assert state.params.keys() == clients.init(0).keys()
    whole = client_network(em.deploy(state), Blueprint.of(clients), "client 1")
    assert {name.partition(".")[2].partition(".")[2] for name, _ in whole.named_parameters()} >= clients.frozen.keys()
    outputs, mask = clients.predict(state.params)
    tokens = clients.federation.inputs[clients.federation.test[1]]
    torch.testing.assert_close(whole.predictive(tokens), outputs[1][mask[1]].softmax(-1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("lora:rank=0", "rank=0, alpha=16.0: expected a whole number of at least 1"),
        ("lora:layers=0", "layers=0, width=1.0: expected a whole number"),
        ("lora:ranks=2", "unknown option of network 'lora' 'ranks'; .*did you mean 'rank'"),
        ("lora:nowhere/to/be/found", "network 'lora:nowhere/to/be/found': there is no such folder, expected one"),
        ("lora:somebody/nothing", "network 'lora:somebody/nothing' cannot be loaded .*; expected a folder"),
        ("lora:{small}", "has a vocabulary of 11 tokens, the federation one of 17; read the texts with the tokens"),
        ("lora:{short}", "takes 4 tokens, the windows have 8; lower length="),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, told: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    places = {"small": tmp_path / "small", "short": tmp_path / "short"}
    saved(places["small"], vocabulary=11)
    saved(places["short"], length=4)
    with pytest.raises(InputError, match=told) as error:
        made(spec=spec.format(**places))
    assert "\n" not in str(error.value)


def test_images_and_missing_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="network 'lora' got numbers as inputs, expected mlp"):
        network_of(load_federation("digits"), "lora")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"network 'lora' needs transformers, .*pip install 'scool_ppl\[lora\]'"):
        module.check_installed()
