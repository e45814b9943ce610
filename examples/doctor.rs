//! Report of the environment of kernels: `cargo run --example doctor`.
//!
//! A bug report begins with it.

fn main() {
    print!("{}", cutlet::doctor());
}
