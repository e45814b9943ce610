//! Guarantees of unsafe code that users cannot claim: an argument that writes through a shared
//! reference.

use cutlet::kernel::{ArgSignature, IntoKernelArg, LaunchArg, WordBuffer};
use cutlet::prelude::*;

struct Shared<'a>(&'a cutlet::DeviceArray<i32, 1>);

impl LaunchArg for Shared<'_> {
    type Traced = ArrayMut<i32, 1>;
    type Output = ();
    fn into_output(self) {}
    fn key(&self, key: &mut WordBuffer) {
        self.0.key(key)
    }
    fn forms(&self, out: &mut Vec<ArgSignature>) {
        self.0.forms(out)
    }
    fn trace(&self, _: &mut cutlet::tile::Tracer) -> ArrayMut<i32, 1> {
        unreachable!()
    }
    fn pack(&self, params: &mut dyn FnMut(u64)) {
        self.0.pack(params)
    }
}

struct Other<'a>(&'a cutlet::DeviceArray<i32, 1>);

impl<'a> IntoKernelArg<ArrayMut<i32, 1>> for Other<'a> {
    type Arg = &'a cutlet::DeviceArray<i32, 1>;
    fn into_arg(self) -> Self::Arg {
        self.0
    }
    fn from_traced(traced: Array<i32, 1>) -> ArrayMut<i32, 1> {
        traced
    }
}

fn main() {}
