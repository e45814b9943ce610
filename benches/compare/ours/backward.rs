//! Rows of the gradients of attention.

use cutlet as ct;
use cutlet::Device;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::examples::attention_backward::{of_keys, row_sums};
use super::examples::attention_queries::{Form, of_queries};
use super::kernels::narrowed;

/// Rows of the tiles in which sums over rows are made.
const ROWS: usize = 64;

/// Queries, keys, values, the result, and its gradient; logarithms of sums, sums of rows;
/// gradients; those of queries in f32.
type Set<T> =
    ([ct::DeviceArray<T, 4>; 5], [ct::DeviceArray<f32, 3>; 2], [ct::DeviceArray<T, 4>; 3], ct::DeviceArray<f32, 4>);

pub fn attention_backward<T>(place: Place, shape: [usize; 4], causal: bool) -> ct::Result<Box<dyn Row>>
where
    T: MmaInput<T, f32> + CastTo<f32>,
    f32: CastTo<T>,
{
    let [batch, heads, seq, dim] = shape;
    let addresses = |(inputs, [logs, sums], gradients, all): &Set<T>| {
        let mut addresses: Vec<u64> = inputs.iter().map(|array| array.address()).collect();
        addresses.push(logs.address());
        addresses.extend(gradients.iter().map(|array| array.address()));
        addresses.extend([sums.address(), all.address()]);
        addresses
    };
    let make = |d: Device| {
        let array = || d.zeros::<T, 4>(shape);
        let rows = || d.zeros::<f32, 3>([batch, heads, seq]);
        let inputs = [array()?, array()?, array()?, array()?, array()?];
        Ok((inputs, [rows()?, rows()?], [array()?, array()?, array()?], d.zeros(shape)?))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    let grid = move |rows: usize| [seq.div_ceil(rows), heads, batch];
    let rows = Constant([ROWS, dim]);
    let of_tile = move |[m, n]: [usize; 2]| Constant(([m, n, dim], causal));
    // Queries and keys of a tile, and whether gradients of weights are computed with the weights.
    let keys = [[64, 128], [32, 128], [64, 64]];
    let queries = [([128, 64], true), ([128, 128], false), ([128, 80], false), ([128, 64], false)];
    // Each of the one with the first of the other.
    let pairs = queries.map(|queries| (keys[0], queries)).into_iter().chain(keys[1..].iter().map(|&k| (k, queries[0])));
    for (keys, ([m, n], early)) in pairs {
        let label = format!("{}x{}, {m}x{n}{}", keys[0], keys[1], if early { " early" } else { "" });
        let of_query = Constant(Form { tile: [m, n, dim], causal, early });
        row = row.with(label, NO_HINTS, move |(inputs, [logs, sums], gradients, _): &mut Set<T>, call| {
            let ([q, k, v, out, dout], [dq, dk, dv]) = (inputs, gradients);
            let none = || None::<&mut ct::DeviceArray<f32, 4>>;
            call.run(grid(ROWS), row_sums::<T>, ((&*dout, &*out), (&mut *sums, none()), rows))?;
            let (inputs, of_rows) = ((&*q, &*k, &*v, &*dout), (&*logs, &*sums));
            call.run(grid(keys[1]), of_keys::<T>, (inputs, of_rows, (dk, dv, none()), scale, of_tile(keys)))?;
            call.run(grid(m), of_queries::<T>, (inputs, of_rows, dq, scale, of_query))
        });
    }
    let keys = keys[0];
    let label = format!("{}x{} at once", keys[0], keys[1]);
    row = row.with(label, NO_HINTS, move |(inputs, [logs, sums], gradients, all): &mut Set<T>, call| {
        let ([q, k, v, out, dout], [dq, dk, dv]) = (inputs, gradients);
        call.run(grid(ROWS), row_sums::<T>, ((&*dout, &*out), (&mut *sums, Some(&mut *all)), rows))?;
        let (inputs, of_rows) = ((&*q, &*k, &*v, &*dout), (&*logs, &*sums));
        call.run(grid(keys[1]), of_keys::<T>, (inputs, of_rows, (dk, dv, Some(&mut *all)), scale, of_tile(keys)))?;
        call.run(grid(ROWS), narrowed::<T>, (&*all, dq, scale, rows))
    });
    Ok(Box::new(row))
}
