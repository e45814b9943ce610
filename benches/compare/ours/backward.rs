//! Rows of the gradients of attention.

use cutlet as ct;
use cutlet::Device;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::examples::attention_backward::{Form, added, of_keys, of_queries, row_sums};

/// Rows of the tiles in which sums over rows are made.
const ROWS: usize = 64;

/// Queries, keys, values, the result, and its gradient; logarithms of sums, sums of rows; gradients; those of queries in f32.
type Set<T> =
    ([ct::DeviceArray<T, 4>; 5], [ct::DeviceArray<f32, 3>; 2], [ct::DeviceArray<T, 4>; 3], ct::DeviceArray<f32, 4>);

/// Tiles of the kernels of keys and of queries, each with queries, keys, and whether gradients of weights come early.
type Tiles = [([usize; 2], bool); 2];

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
    let form = move |(tile, early): ([usize; 2], bool)| Constant(Form { tile: [tile[0], tile[1], dim], causal, early });
    let rows = Constant([ROWS, dim]);
    let label = |([m, n], early): ([usize; 2], bool)| format!("{m}x{n}{}", if early { " early" } else { "" });
    let keys = [([64, 128], false), ([32, 128], false), ([64, 64], true)];
    let queries = [([128, 64], true), ([128, 128], false), ([128, 80], false), ([128, 64], false)];
    // Each of the one with the first of the other.
    let pairs = queries.map(|queries| [keys[0], queries]).into_iter().chain(keys[1..].iter().map(|&k| [k, queries[0]]));
    for tiles in pairs {
        let [keys, queries]: Tiles = tiles;
        let label = format!("{}, {}", label(keys), label(queries));
        row = row.with(label, NO_HINTS, move |(inputs, [logs, sums], gradients, _): &mut Set<T>, call| {
            let ([q, k, v, out, dout], [dq, dk, dv]) = (inputs, gradients);
            call.run(
                grid(ROWS),
                row_sums::<T>,
                ((&*dout, &*out), (&mut *sums, None::<&mut ct::DeviceArray<f32, 4>>), rows),
            )?;
            let (inputs, of_rows) = ((&*q, &*k, &*v, &*dout), (&*logs, &*sums));
            let results = (dk, dv, None::<&mut ct::DeviceArray<f32, 4>>);
            call.run(grid(keys.0[1]), of_keys::<T>, (inputs, of_rows, results, scale, form(keys)))?;
            call.run(grid(queries.0[0]), of_queries::<T>, (inputs, of_rows, dq, scale, form(queries)))
        });
    }
    for keys in &keys[..1] {
        let keys = *keys;
        let label = format!("{} at once", label(keys));
        row = row.with(label, NO_HINTS, move |(inputs, [logs, sums], gradients, all): &mut Set<T>, call| {
            let ([q, k, v, out, dout], [dq, dk, dv]) = (inputs, gradients);
            call.run(grid(ROWS), row_sums::<T>, ((&*dout, &*out), (&mut *sums, Some(&mut *all)), rows))?;
            let (inputs, of_rows) = ((&*q, &*k, &*v, &*dout), (&*logs, &*sums));
            call.run(grid(keys.0[1]), of_keys::<T>, (inputs, of_rows, (dk, dv, Some(&mut *all)), scale, form(keys)))?;
            call.run(grid(ROWS), added::<T>, (&*all, dq, scale, rows))
        });
    }
    Ok(Box::new(row))
}
