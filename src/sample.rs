//! How much tests try: of what there is a lot of, a sample; all of it with `CUTLET_TESTS=all`, as in `.ci/run`. Knows nothing of this
//! crate.

/// A test tries every `n`-th of its cases, or every one where all are asked for.
pub fn one_in(n: usize) -> usize {
    if std::env::var_os("CUTLET_TESTS").is_some_and(|value| value == "all") { 1 } else { n }
}
