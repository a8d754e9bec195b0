"""A folder of texts as a federation: a client for each file or folder in it, who predicts the next token."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from scool_ppl.base.arguments import whole
from scool_ppl.base.describe import natural
from scool_ppl.base.randomness import generator
from scool_ppl.data.federation import Federation
from scool_ppl.data.recipes.splitting import kept_back
from scool_ppl.data.texts.tokens import tokens_of
from scool_ppl.errors import InputError
from scool_ppl.tasks.categorical import NextToken

FEWEST = 3
"""Windows of a client at least: one to train, one to test, one more."""


def texts(
    path: str,
    seed: int,
    *,
    length: int = 64,
    tokens: str = "characters",
    windows: int | None = None,
    validation: float = 0.2,
    test: float = 0.2,
) -> Federation:
    """A folder of .txt files, one a client, or of folders of such: windows of `length` tokens, each with those that follow.

    A client's text is cut from its beginning, no two windows have a token to predict in common; `windows`: at most so many
    of a client. The last share `test` of them tests; of the others a random share validates. tokens: see `tokens_of`.
    """
    if (
        not whole(length)
        or not (0 < test < 1 and 0 <= validation < 1)
        or not (windows is None or whole(windows, least=FEWEST))
    ):
        raise InputError(
            f"length={length}, windows={windows}, validation={validation}, test={test}: expected at least 1 token, windows "
            f"of at least {FEWEST}, and parts between 0 and 1"
        )
    written = _read(Path(path).expanduser())
    kind = tokens_of(tokens, list(written.values()))
    pieces = {name: _cut(name, kind.encode(text), length, windows) for name, text in written.items()}
    counts = torch.tensor([len(piece) for piece in pieces.values()])
    first, parts = counts.cumsum(0) - counts, list[tuple[Tensor, Tensor, Tensor]]()
    for name, begin, count in zip(pieces, first.tolist(), counts.tolist(), strict=True):
        rows, held = torch.arange(begin, begin + count), min(max(1, round(test * count)), count - 2)
        order = rows[: count - held][torch.randperm(count - held, generator=generator(seed, "texts", name))]
        parts.append((*kept_back(order, validation), rows[count - held :]))
    every = torch.cat(list(pieces.values()))
    train, valid, tested = zip(*parts, strict=True)
    return Federation(
        inputs=every[:, :-1].contiguous(),
        targets=every[:, 1:].contiguous(),
        train=train,
        validation=valid,
        test=tested,
        names=tuple(pieces),
        task=NextToken(kind.vocabulary),
    )


def _read(folder: Path) -> dict[str, str]:
    """The texts of a folder by name; of a folder in it all files; both in the order of their names, 2 before 10."""
    if not folder.is_dir():
        raise InputError(f"no folder '{folder}', expected one of .txt files, or of folders of such; write text:FOLDER")
    found: dict[str, str] = {}
    for place in _in_order(folder.iterdir()):
        files = _in_order(file for file in (place, *place.rglob("*")) if _is_text(file, folder))
        if not files:
            continue
        name = place.name if place.is_dir() else place.stem
        if name in found:
            raise InputError(
                f"'{folder}' has a file and a folder called '{name}', expected a name a client; rename one"
            )
        found[name] = "\n".join(_text(file) for file in files)
    if not found:
        raise InputError(f"'{folder}' has no .txt files, expected one a client, or folders of such; add some")
    return found


def _in_order(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [natural(part) for part in path.parts])


def _is_text(path: Path, folder: Path) -> bool:
    """By its ending; what is hidden, or inside something hidden, is none."""
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() == ".txt" and not hidden and not path.is_dir()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{file}' as UTF-8 text ({error}); convert or remove it") from error


def _cut(name: str, tokens: Tensor, length: int, most: int | None) -> Tensor:
    """(n, length + 1), each beginning with the last token of the one before."""
    count = (len(tokens) - 1) // length
    if count < FEWEST:
        raise InputError(
            f"the text of '{name}' has {len(tokens)} tokens, expected {FEWEST * length + 1} at least for windows of "
            f"{length}; lower length=, or add to it"
        )
    return tokens.unfold(0, length + 1, length)[:most].clone()
