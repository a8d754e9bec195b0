"""LocalFabric: hosts in this process, for tests, and what every other fabric is measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scool_ppl.errors import InputError
from scool_ppl.far.host import Host
from scool_ppl.far.wire import Answers, Build, Description, Reply, size


class LocalFabric:
    """Hosts beside the driver. `trips` counts how often they were asked, `bytes` what would have travelled."""

    near = True

    def __init__(self, *hosts: Host) -> None:
        self.hosts, self.trips, self.bytes = hosts, 0, 0
        self.where: dict[str, Host] = {}
        for host in hosts:
            for name in host.place:
                if name in self.where:
                    raise InputError(f"two hosts have a client '{name}', expected a name of its own for each client")
                self.where[name] = host

    def describe(self) -> dict[str, Description]:
        return {name: told for host in self.hosts for name, told in host.describe().items()}

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        self.trips += 1
        replies: dict[str, Reply] = {}
        faults: dict[str, str] = {}
        for host in self.hosts:
            requests = {name: build(name) for name in names if self.where[name] is host}
            if requests:
                found = host.handle(requests)
                replies |= found.replies
                faults |= found.faults
                self.bytes += sum(job.bytes for request in requests.values() for job in request)
        self.bytes += sum(size(told) for reply in replies.values() for told in reply)
        return Answers(replies, faults)

    def away(self, round: int) -> Mapping[str, str]:
        return {}
