//! Rows of attention with 8-bit floats.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::examples::attention_f8::{GROUP, attention_f8 as kernel, turned};

/// Keys that are transposed at a time.
const TURNED: usize = 128;

/// Queries, keys, values; the result; values along the sums.
type Set = ([ct::DeviceArray<f8e4m3fn, 4>; 3], ct::DeviceArray<bf16, 4>, ct::DeviceArray<f8e4m3fn, 4>);

pub fn attention_f8(place: Place, shape: [usize; 4], causal: bool) -> ct::Result<Box<dyn Row>> {
    let [batch, heads, seq, dim] = shape;
    let addresses =
        |([q, k, v], out, along): &Set| vec![q.address(), k.address(), v.address(), out.address(), along.address()];
    let make = |d: Device| {
        let along = d.zeros([batch, heads, dim, seq.next_multiple_of(GROUP)])?;
        Ok(([d.zeros(shape)?, d.zeros(shape)?, d.zeros(shape)?], d.zeros(shape)?, along))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    for tile in [[128, 128], [128, 160], [128, 192], [128, 64], [128, 96]] {
        let form = Constant(([tile[0], tile[1], dim], causal));
        let scales = [place.device.full([batch, heads], scale)?, place.device.full([batch, heads], 1.0f32)?];
        let label = format!("{}x{}", tile[0], tile[1]);
        row = row.with(label, NO_HINTS, move |([q, k, v], out, along): &mut Set, call| {
            let part = Constant([TURNED, dim]);
            call.run([seq.div_ceil(TURNED), heads, batch], turned, (&*v, &mut *along, part))?;
            let arguments = ((&*q, &*k, &*along), out, [&scales[0], &scales[1]], form);
            call.run([seq.div_ceil(tile[0]), heads, batch], kernel, arguments)
        });
    }
    Ok(Box::new(row))
}
