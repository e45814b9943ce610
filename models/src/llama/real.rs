//! Element types of the model.

use cutlet::prelude::*;
use cutlet::random::RandomFloat;
use cutlet_kernels::Number;
use cutlet_kernels::products::Factor;

/// Element types of weights and activations: f32, bf16, f16.
pub trait Real: Number + Factor<Value = f32> + RandomFloat {}
impl Real for f32 {}
impl Real for bf16 {}
impl Real for f16 {}
