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

    folder: where it is kept on disk, which a host needs that is to go on after it has ended; None keeps the last `most` of
    each client in memory.
    """

    def __init__(self, folder: Path | None = None, most: int = 64) -> None:
        self.folder, self.most = folder, most
        self._kept: dict[str, OrderedDict[str, Belongings]] = {}

    def keep(self, whose: str, belongings: Belongings) -> Tensor:
        """The seal of what is kept of a client from now on."""
        content = safetensors.torch.save({name: value.contiguous() for name, value in sorted(belongings.items())})
        found = hashlib.sha256(content)
        if self.folder is None:
            mine = self._kept.setdefault(whose, OrderedDict())
            mine[found.hexdigest()] = belongings
            mine.move_to_end(found.hexdigest())
            if len(mine) > self.most:
                mine.popitem(last=False)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / f"{found.hexdigest()}.safetensors") as temporary:
                temporary.write_bytes(content)
        return torch.frombuffer(bytearray(found.digest()), dtype=torch.int64)

    def find(self, whose: str, seal: Tensor) -> Belongings:
        """What was kept of a client under a seal."""
        name = seal.cpu().contiguous().view(torch.uint8).numpy().tobytes().hex()
        if self.folder is None:
            mine = self._kept.get(whose, OrderedDict())
            if name in mine:
                mine.move_to_end(name)
                return mine[name]
        else:
            try:
                return safetensors.torch.load((self.folder / f"{name}.safetensors").read_bytes())
            except (OSError, SafetensorError):
                pass
        raise InputError(
            f"no private part {name[:12]} is kept here, expected one of an earlier round; start the host with the folder "
            "that it had, or begin a new run"
        )
