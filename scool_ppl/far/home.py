"""Home: the private parts of a host's clients, which a driver knows by a seal only."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError

SEAL = "at home"
"""What stands for a private part in a driver's networks: (4,) long, the SHA-256 of all that belongs to it."""
Belongings = dict[str, Tensor]
"""Private parameters of one network, and buffers of their optimiser, by name."""


class Home:
    """What clients keep, by its seal. A driver sends the seal back and with it says which round's it means, so that a round
    can begin again and a run go on from a checkpoint.

    folder: where it is kept on disk, which a host needs that is to go on after it has ended; None keeps the last `most` in
    memory.
    """

    def __init__(self, folder: Path | None = None, most: int = 4096) -> None:
        self.folder, self.most = folder, most
        self._kept: OrderedDict[str, Belongings] = OrderedDict()

    def keep(self, belongings: Belongings) -> Tensor:
        """The seal of what is kept from now on."""
        content = safetensors.torch.save({name: value.contiguous() for name, value in sorted(belongings.items())})
        found = hashlib.sha256(content)
        if self.folder is None:
            self._kept[found.hexdigest()] = belongings
            self._kept.move_to_end(found.hexdigest())
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / f"{found.hexdigest()}.safetensors") as temporary:
                temporary.write_bytes(content)
        return torch.frombuffer(bytearray(found.digest()), dtype=torch.int64)

    def find(self, seal: Tensor) -> Belongings:
        """What was kept under a seal."""
        name = seal.cpu().contiguous().view(torch.uint8).numpy().tobytes().hex()
        if self.folder is None:
            if name in self._kept:
                return self._kept[name]
        else:
            try:
                return safetensors.torch.load((self.folder / f"{name}.safetensors").read_bytes())
            except (OSError, SafetensorError):
                pass
        raise InputError(
            f"no private part {name[:12]} is kept here, expected one of an earlier round; start the host with the folder "
            "that it had, or begin a new run"
        )
