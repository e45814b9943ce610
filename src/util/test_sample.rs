//! Sample size of tests: a part of the cases, or all of them with `CUTLET_TESTS=all`, as in
//! `.ci/run`. This file is independent of the rest of the crate.

/// Returns the step between the cases that a test tries: `n`, or 1 if all cases are requested.
pub fn one_in(n: usize) -> usize {
    if std::env::var_os("CUTLET_TESTS").is_some_and(|value| value == "all") { 1 } else { n }
}
