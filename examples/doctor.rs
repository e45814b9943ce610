//! What there is for kernels to run with: `cargo run --example doctor`.
//!
//! The first thing to put into a bug report.

fn main() {
    print!("{}", cutlet::doctor());
}
