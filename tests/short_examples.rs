//! Single-file examples: each runs, and reports success by its result.

#![allow(dead_code, reason = "examples are programs")]

#[path = "../examples/ahead.rs"]
mod ahead;
#[path = "../examples/future.rs"]
mod future;
#[path = "../examples/graph.rs"]
mod graph;
#[path = "../examples/tune.rs"]
mod tune;

#[test]
fn a_graph_is_replayed_with_other_numbers() {
    graph::main().unwrap();
}

#[test]
fn a_stream_is_awaited() {
    future::main().unwrap();
}

#[test]
fn kernels_are_precompiled() {
    ahead::main().unwrap();
}

#[test]
fn a_search_keeps_its_record() {
    tune::main().unwrap();
    tune::main().unwrap();
}
