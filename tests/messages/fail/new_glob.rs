//! All names of the crate at once.

use cutlet::*;

// ## `use cutlet::*` and `println!`
fn report(n: usize) {
    println!("{n}");
}

fn main() {}
