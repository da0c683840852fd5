"""The byte-level BPE tokenizer that both models share.

It is trained once, or taken from a GGUF file so that new models fit the old
token ids.
"""

from __future__ import annotations

import json
from pathlib import Path

SPECIALS = ["<|endoftext|>", "<|reserved_1|>", "<|reserved_2|>", "<|reserved_3|>"]


def train(texts: list[str], path: Path, vocab: int = 4096) -> None:
    """Trains the tokenizer on some texts and writes tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIALS,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tok.train_from_iterator(texts, trainer)
    tok.save(str(path))


def restore(gguf_path: Path, path: Path) -> None:
    """Rebuilds tokenizer.json from the token list and merges of a GGUF file."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = gguf.GGUFReader(gguf_path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    tok.save(str(path))


def listing(path: Path) -> tuple[list[str], list[str]]:
    """Returns the tokens in the order of their ids, and the merges."""
    data = json.loads(path.read_text())["model"]
    vocab = sorted(data["vocab"].items(), key=lambda item: item[1])
    assert [i for _, i in vocab] == list(range(len(vocab)))
    return [t for t, _ in vocab], [m if isinstance(m, str) else " ".join(m) for m in data["merges"]]
