//! Traits that programs call and cannot implement.

use cutlet as ct;
use ct::ops::{Axis, HostCount, OtherNameOfCast};

#[derive(Clone, Copy)]
struct Last;

impl Axis for Last {
    fn axis(self, rank: usize) -> usize {
        rank - 1
    }
}

impl HostCount for Last {
    fn wide(self) -> i128 {
        1
    }
}

impl OtherNameOfCast for Last {}

fn main() {}
