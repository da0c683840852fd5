"""Random-weight RWKV models in F32, which llama.cpp's test-llama-archs leaves out.

Owns their hyperparameters and tensor shapes (llama.cpp, src/models/rwkv*.cpp and arwkv7.cpp) and a vocabulary of
128 tokens without text. Usage: rwkv.py -s SEED -o DIR NAME ...
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path

import gguf
import numpy as np

Shapes = dict[str, tuple[int, ...]]

# llama.cpp's vector code of RWKV 7 steps through a head by 64 and writes past the end of a smaller one.
N_VOCAB, N_LAYER, N_EMBD, N_FF, HEAD = 128, 2, 128, 192, 64
N_HEAD = N_EMBD // HEAD
LORA = 8  # rank of every low-rank pair
_N_CTX = 256
_MIX_6, _MIX_7 = 5, 6  # inputs that one fused interpolation gives: w k v r g, and r w k v a g


def _norm(name: str) -> Shapes:
    return {f"{name}.weight": (N_EMBD,), f"{name}.bias": (N_EMBD,)}


def _matrices(*names: str) -> Shapes:
    return {f"{name}.weight": (N_EMBD, N_EMBD) for name in names}


def _time_mix_6() -> Shapes:
    return {
        "time_mix_w1.weight": (_MIX_6 * LORA, N_EMBD),
        "time_mix_w2.weight": (_MIX_6, N_EMBD, LORA),
        "time_mix_lerp_x.weight": (1, 1, N_EMBD),
        "time_mix_lerp_fused.weight": (_MIX_6, 1, 1, N_EMBD),
        "time_mix_decay.weight": (N_EMBD,),
        "time_mix_decay_w1.weight": (LORA, N_EMBD),
        "time_mix_decay_w2.weight": (N_EMBD, LORA),
        **_matrices("time_mix_key", "time_mix_value", "time_mix_receptance", "time_mix_gate", "time_mix_output"),
    }


def _time_mix_7() -> Shapes:
    pairs = {f"time_mix_{x}1.weight": (LORA, N_EMBD) for x in "wavg"}
    pairs |= {f"time_mix_{x}2.weight": (N_EMBD, LORA) for x in "wavg"}
    vectors = {f"time_mix_{x}.weight": (N_EMBD,) for x in ("w0", "a0", "v0", "k_k", "k_a", "r_k")}
    return {
        **pairs,
        **vectors,
        "time_mix_lerp_fused.weight": (_MIX_7, 1, 1, N_EMBD),
        **_matrices("time_mix_key", "time_mix_value", "time_mix_receptance", "time_mix_output"),
        **_norm("time_mix_ln"),
    }


def _channel_mix() -> Shapes:
    return {
        **_norm("attn_norm"),
        **_norm("attn_norm_2"),
        "channel_mix_lerp_k.weight": (1, 1, N_EMBD),
        "channel_mix_key.weight": (N_FF, N_EMBD),
        "channel_mix_value.weight": (N_EMBD, N_FF),
    }


def _gated_ffn() -> Shapes:
    return {
        "attn_norm.weight": (N_EMBD,),
        "ffn_norm.weight": (N_EMBD,),
        "ffn_gate.weight": (N_FF, N_EMBD),
        "ffn_up.weight": (N_FF, N_EMBD),
        "ffn_down.weight": (N_EMBD, N_FF),
    }


_FIRST = {"time_mix_first.weight": (N_HEAD, HEAD)}
_RECEPTANCE = {"channel_mix_lerp_r.weight": (1, 1, N_EMBD), **_matrices("channel_mix_receptance")}
#: Tensors of one layer, shapes as numpy has them.
LAYERS: dict[str, Shapes] = {
    "rwkv6": _time_mix_6() | _FIRST | _norm("time_mix_ln") | _channel_mix() | _RECEPTANCE,
    "rwkv6qwen2": _time_mix_6() | _gated_ffn(),
    "rwkv7": _time_mix_7() | _channel_mix(),
    "arwkv7": _time_mix_7() | _gated_ffn(),
}


def _tensors(name: str) -> Shapes:
    shapes: Shapes = {
        "token_embd.weight": (N_VOCAB, N_EMBD),
        "output.weight": (N_VOCAB, N_EMBD),
        **_norm("output_norm"),
    }
    if name == "arwkv7":
        del shapes["output_norm.bias"]
    if name in ("rwkv6", "rwkv7"):
        shapes |= _norm("token_embd_norm")
    for layer in range(N_LAYER):
        shapes |= {f"blk.{layer}.{tensor}": shape for tensor, shape in LAYERS[name].items()}
    return shapes


def _values(seed: int, tensor: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random, of a size that keeps activations near 1: norms about 1, matrices by their number of inputs."""
    generator = np.random.default_rng((seed, zlib.crc32(tensor.encode())))
    values = generator.standard_normal(shape, dtype=np.float32)
    if "norm" in tensor or "_ln." in tensor:
        return values * np.float32(0.1) + np.float32(tensor.endswith("weight"))
    return values * np.float32(shape[-1] ** -0.5 if len(shape) > 1 and shape[-2] > 1 else 0.5)


def write(name: str, file: Path, seed: int) -> None:
    """Write the model of architecture `name`."""
    writer = gguf.GGUFWriter(file, name)
    writer.add_vocab_size(N_VOCAB)
    writer.add_context_length(_N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_block_count(N_LAYER)
    writer.add_head_count(0 if name in ("rwkv6", "rwkv7") else N_HEAD)
    writer.add_head_count_kv(0 if name in ("rwkv6", "rwkv7") else N_HEAD)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_wkv_head_size(HEAD)
    writer.add_token_shift_count(2 if name in ("rwkv6", "rwkv7") else 1)
    if name.startswith("rwkv6"):
        writer.add_time_mix_extra_dim(LORA)
        writer.add_time_decay_extra_dim(LORA)
        writer.add_rescale_every_n_layers(0)
    else:
        writer.add_decay_lora_rank(LORA)
        writer.add_iclr_lora_rank(LORA)
        writer.add_value_residual_mix_lora_rank(LORA)
        writer.add_gate_lora_rank(LORA)
    writer.add_tokenizer_model("test")
    writer.add_token_list([f"tok_{i}" for i in range(N_VOCAB)])
    writer.add_token_scores([0.0] * N_VOCAB)
    for tensor, shape in _tensors(name).items():
        writer.add_tensor(tensor, _values(seed, tensor, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Command line: one file `NAME-dense.gguf` for each name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-s", "--seed", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("names", nargs="+", choices=LAYERS, metavar="NAME", help=", ".join(LAYERS))
    options = parser.parse_args()
    for name in options.names:
        write(name, options.out / f"{name}-dense.gguf", options.seed)


if __name__ == "__main__":
    main()
