//! Tests of the rewriting on random kernels.

use super::dispatch::is_float_tile;
use super::exact;
use crate::ir::{Module, verify};
use crate::pass::optimize;
use crate::pass::tests::random;
use crate::util::test_sample::one_in;

#[track_caller]
fn check(module: &Module, seed: u64) {
    verify(module).unwrap_or_else(|problems| panic!("seed {seed}: {}\n{module}", problems[0]));
}

#[test]
fn random_kernels_have_no_floats_and_keep_their_bits_through_the_passes() {
    for seed in 0..200 / one_in(5) as u64 {
        let mut module = random::kernel(seed);
        exact(&mut module).unwrap_or_else(|problems| panic!("seed {seed}: {}", problems[0]));
        check(&module, seed);
        module.walk(module.entries[0].body, &mut |id| {
            let op = module.op(id);
            assert!(op.results.iter().all(|&value| !is_float_tile(module.ty(value))), "seed {seed}: {:?}", op.code);
        });
        let expected = random::run(&module);
        let mut optimized = module.clone();
        optimize(&mut optimized);
        check(&optimized, seed);
        assert_eq!(random::run(&optimized), expected, "seed {seed}:\n{module}\n{optimized}");
    }
}
