//! Report of the environment of kernels: `cargo run --example doctor`.
//!
//! The first thing to put into a bug report.

fn main() {
    print!("{}", cutlet::doctor());
}
