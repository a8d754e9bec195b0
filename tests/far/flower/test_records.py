"""Records: requests, replies and descriptions come back as they were; what is anything else is one line."""

from __future__ import annotations

import pytest
import torch

from scool_ppl.far import Answers, Host, Job, Networks
from tests.helpers.flower import flwr
from tests.helpers.refusals import refuses
from tests.helpers.unequal import clients, federation

records = pytest.importorskip("scool_ppl.far.flower.records")


def test_requests_come_back_as_they_were() -> None:
    one, two = torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 3)
    first = Job("train", {"seed": 1, "rate": 1.5, "name": "a b", "steps": None, "on": True}, {"theta": one[0]})
    second = Job("losses", {}, {"started": torch.tensor(True), "none": torch.zeros(0, 2)}, Networks(one, (3, 1)))
    third = Job("losses", {}, {}, Networks(one, (1, 2)))
    requests = {"hospital 1": (first, second, third), "x/y|z": (Job("init", {"seed": 2}, {}, Networks(two, ())),)}
    found = records.requests_in(records.Packing()(requests))
    assert list(found) == list(requests)
    for name, jobs in requests.items():
        for mine, theirs in zip(found[name], jobs, strict=True):
            assert (mine.verb, mine.options, mine.tensors.keys()) == (
                theirs.verb,
                theirs.options,
                theirs.tensors.keys(),
            )
            assert all(torch.equal(mine.tensors[key], value) for key, value in theirs.tensors.items())
            assert all(mine.tensors[key].dtype == value.dtype for key, value in theirs.tensors.items())
            if theirs.networks is not None and theirs.networks.use:
                assert mine.networks is not None
                assert torch.equal(mine.networks.picked(), theirs.networks.picked())


def test_a_network_that_many_are_sent_is_packed_once() -> None:
    stack, packing = torch.randn(3, 5), records.Packing()
    job = Job("losses", {}, {}, Networks(stack, (0, 2)))
    packed = [packing({name: (job, job)}) for name in ("a", "b")]
    arrays = [list(record.array_records["arrays"].values()) for record in packed]
    assert [len(each) for each in arrays] == [2, 2], "twice in a request is once, too"
    assert all(one.data is other.data for one, other in zip(*arrays, strict=True))


def test_answers_and_descriptions_come_back_as_they_were() -> None:
    answers = Answers({"a": ({"loss": torch.tensor([1.5, float("nan")])}, {})}, {"b": "ValueError: no"})
    found = records.answers_in(records.answered(answers))
    assert found.faults == answers.faults
    assert found.replies["a"][1] == {}
    assert torch.equal(found.replies["a"][0]["loss"].nan_to_num(-1), torch.tensor([1.5, -1]))
    told = Host(clients(federation())).describe()
    assert records.descriptions_in(records.described(told)) == told


def test_what_is_no_answer_is_one_line() -> None:
    record = records.answered(Answers({"a": ({"loss": torch.zeros(2)},)}, {}))
    record.array_records["arrays"].clear()
    for spoilt in (record, flwr.RecordDict(), records.words(head="{")):
        refuses(lambda spoilt=spoilt: records.answers_in(spoilt), "it sent what cannot be read")
    told = records.described(Host(clients(federation())).describe())
    head = told.config_records["head"]
    head["clients"] = str(head["clients"]).replace('"rows": [', '"rows": ["many", ')
    refuses(lambda: records.descriptions_in(told), "expected int")
    refuses(lambda: records.descriptions_in(records.words(fault="no")), "cannot be read")
