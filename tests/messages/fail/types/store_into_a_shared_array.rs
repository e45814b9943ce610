//! A shared array is read only.

use cutlet as ct;
use cutlet::prelude::*;

fn kernel(a: Array<f32, 1>) {
    a.store(ct::bid(0), ct::zeros([128]));
}

fn main() {}
