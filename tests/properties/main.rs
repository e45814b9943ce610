//! Property tests find planted mistakes of kernels, and nothing in correct kernels.
//!
//! Each mistake is a kernel with a flag: with it, the mistake is in the kernel; without it, the
//! kernel is correct. A test runs the property of both.
//! `cargo test --test properties -- --nocapture` prints the times and the reports.

mod blocks;
mod device;
mod edges;
mod examples;
mod numbers;
mod printed_programs;
mod structure;

use std::time::{Duration, Instant};

use cutlet::test::{Finding, Summary};

/// The result of a property.
type Outcome = Result<Summary, Box<Finding>>;

/// Time within which a mistake is found, reduced and reported.
const LIMIT: Duration = Duration::from_secs(10);

/// Checks the property of a kernel with and without its mistake.
fn planted(name: &str, property: fn(bool) -> Outcome) {
    let start = Instant::now();
    let found = property(true);
    let time = start.elapsed();
    let finding = found.expect_err("the mistake is not found");
    println!("{name}: found in {:.2} s\n{finding}\n", time.as_secs_f64());
    assert!(time < LIMIT, "{name}: found after {time:?}");
    let start = Instant::now();
    let summary = property(false).unwrap_or_else(|finding| panic!("the correct kernel has a finding: {finding}"));
    println!("{name}: correct kernel, {summary:?}, {:.2} s", start.elapsed().as_secs_f64());
    assert!(summary.cases > 0);
}

/// Tests of planted mistakes, each a function of a flag in a module.
macro_rules! planted {
    ($($module:ident: $($name:ident)+;)+) => {$($(
        #[test]
        fn $name() {
            crate::planted(stringify!($name), $module::$name);
        }
    )+)+};
}

planted! {
    edges: short_grid padding_of_softmax unmasked_variance identity_of_maximum dropped_last_tile overlapping_chunks
        edge_of_stencil causal_mask last_bin index_of_table mean_of_nothing;
    blocks: overlapping_stores lost_updates running_sum_through_memory last_block_wins reversal_in_place stale_output
        stale_scratch store_beyond_the_end assumed_row_major missing_batch missing_part publication_without_release;
    numbers: narrow_sum overflowing_square half_accumulator ignored_nan unsigned_difference truncated_quotient
        shift_by_width missing_epsilon unscaled_exponential negative_to_unsigned negative_zero flushed_subnormals;
    structure: wrong_axis transposed_store wrong_stride missing_rescale lost_carry offset_of_argmax tie_of_argmax
        axis_of_bias extent_of_product tile_in_result dependent_rows nonlinear_scale;
}
