"""Kernels of quack and of FlashAttention-4 that `export_peers.py` has compiled: NAME.so and NAME.json in the folder `exported`."""

import json

_loaded = {}


def contenders(row, folder):
    """One contender of each package that has kernels for a row, with a configuration of each of them."""
    from peers_library import Library
    found = {}
    for path in sorted((folder / "exported").glob("*.json")):
        about = json.loads(path.read_text())
        if fits(about, row):
            found.setdefault(about["peer"], {})[about["label"]] = call(path.with_suffix(".so"), about)
    return [Library(peer, calls) for peer, calls in found.items()]


def fits(about, row):
    """Is a kernel one for this row?"""
    if (about["kernel"], about["element"]) != (row.kernel, row.element):
        return False
    return row.kernel != "attention" or (about["numbers"], about["causal"]) == (row.numbers[-1], row.causal)


def call(library, about):
    """A function of a row's tensors. Those of attention are turned: to batch x sequence x heads x numbers."""
    def value(written, tensors):
        if isinstance(written, dict):
            tensor = tensors[written["tensor"]]
            return tensor.transpose(1, 2) if about["kernel"] == "attention" else tensor
        return tuple(value(part, tensors) for part in written) if isinstance(written, list) else written
    def run(tensors):
        import tvm_ffi
        kernel = _loaded.get(library) or _loaded.setdefault(library, tvm_ffi.load_module(str(library))["kernel"])
        # On the stream of torch, as tvm_ffi does with its tensors.
        kernel(*(value(part, tensors) for part in about["arguments"]))
    return run
