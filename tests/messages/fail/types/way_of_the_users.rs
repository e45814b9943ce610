//! Code that arrives by the user's function cannot be declared to be in the common way.

use cutlet::kernel::{IntoKernelArg, ArgConversion};
use cutlet::prelude::*;

type Two = (Array<f32, 1>, Array<f32, 1>);

struct Crossed<'a>(&'a cutlet::DeviceArray<f32, 1>, &'a cutlet::DeviceArray<f32, 1>);

impl<'a> IntoKernelArg<Two> for Crossed<'a> {
    type Arg = (&'a cutlet::DeviceArray<f32, 1>, &'a cutlet::DeviceArray<f32, 1>);
    const CONVERSION: ArgConversion<Self, Two> = ArgConversion::common();
    fn into_arg(self) -> Self::Arg {
        (self.0, self.1)
    }
    fn from_traced((a, b): Two) -> Two {
        (b, a)
    }
}

fn main() {}
