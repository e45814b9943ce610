//! Code that arrives by the user's function cannot be declared to be in the common way.

use cutlet::kernel::{ArrivesAs, Way};
use cutlet::prelude::*;

type Two = (Array<f32, 1>, Array<f32, 1>);

struct Crossed<'a>(&'a cutlet::DeviceArray<f32, 1>, &'a cutlet::DeviceArray<f32, 1>);

impl<'a> ArrivesAs<Two> for Crossed<'a> {
    type Given = (&'a cutlet::DeviceArray<f32, 1>, &'a cutlet::DeviceArray<f32, 1>);
    const WAY: Way<Self, Two> = Way::common();
    fn give(self) -> Self::Given {
        (self.0, self.1)
    }
    fn arrive((a, b): Two) -> Two {
        (b, a)
    }
}

fn main() {}
