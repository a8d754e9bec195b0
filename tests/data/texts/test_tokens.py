"""Tokens stand for what they are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from scool_ppl import InputError
from scool_ppl.data.texts.tokens import tokens_of

TEXTS = ("abba", "bäh, a")


def test_bytes_are_those_of_utf_8() -> None:
    kind = tokens_of("bytes", TEXTS)
    assert kind.vocabulary == 256
    assert bytes(kind.encode(TEXTS[1]).tolist()).decode() == TEXTS[1]


def test_characters_are_those_of_all_texts() -> None:
    kind = tokens_of("characters", TEXTS)
    letters = sorted(set("".join(TEXTS)))
    assert kind.vocabulary == len(letters)
    assert "".join(letters[token] for token in kind.encode(TEXTS[1]).tolist()) == TEXTS[1]


def test_a_tokenizer_of_transformers_is_read_from_its_folder(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"you": 0, "say": 1, "yes": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path)
    kind = tokens_of(str(tmp_path), TEXTS)
    assert kind.vocabulary == 4
    assert kind.encode("you say no yes").tolist() == [0, 1, 3, 2]


def test_what_is_no_tokenizer_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(
        InputError, match=r"^tokens=.* is no tokenizer \(.*\); expected bytes, characters, or a model"
    ) as told:
        tokens_of(str(tmp_path), TEXTS)
    assert "\n" not in str(told.value)
