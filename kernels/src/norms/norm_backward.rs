//! Gradients of RMS norm and layer norm over rows.
//!
//! With the normalised row n and g = dy · weight, the gradient of a row is s · (g - n · mean(g n)).
//! If the mean is subtracted, it is s · (g - mean(g) - n · mean(g n)). The factor s is the inverse
//! deviation.
//!
//! A tile block iterates over rows in registers, and keeps the sums of dy · n and dy for each
//! column. On Hopper, two tile blocks share a row of twice as many columns. Longer rows have two
//! passes: one computes s, the mean of x, mean(g) and mean(g n) of each row, the other one the
//! gradients, with a part of the columns in each block. A last kernel adds the sums of all blocks,
//! always in one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{Form, LONGEST_TILE, collapses, four, is_hopper};
use super::sums::sum_rows;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Constants {
    form: Form,
    centered: bool,
    /// There is one axis of rows.
    flat: bool,
}

/// Operand, gradient of the result, gradient of the sum with the residual, and weight.
type Inputs<T> = (Array<T, 4>, Array<T, 4>, Option<Array<T, 4>>, Array<T, 1>);

/// Tiles of an operand and of a gradient, or two sums of each column.
type Pair = [Tile<f32, 4>; 2];

fn kernel<T: Number>(
    (x, dy, dsum, weight): Inputs<T>,
    dx: ArrayMut<T, 4>,
    (dweight, dbias): (ArrayMut<f32, 2>, Option<ArrayMut<f32, 2>>),
    epsilon: Scalar<f32>,
    Constants { form, centered, flat }: Constants,
) {
    let rows = form.here();
    let (shape, part, columns) = (form.shape(), rows.part(), x.extent(3));
    let count = columns.cast::<f32>();
    let [outer, middle, inner] = [0, 1, 2].map(|axis| x.num_tiles(axis, shape));
    let zeros = || ct::zeros::<f32, 4>(shape);
    let end = if flat { inner } else { outer * middle * inner };
    let step = ct::num_blocks(0) / form.parts as i32;
    let place = |index: Scalar<i32>| match flat {
        true => [ct::scalar(0), ct::scalar(0), index, part],
        false => [index / inner / middle, index / inner % middle, index % inner, part],
    };
    let weight = weight.load(part, [form.tile]);
    let weight = || weight.reshape([1, 1, 1, form.tile]).cast::<f32>();
    let first = centered.then(|| {
        let x = x.load(place(rows.row), shape);
        (x, rows.sum(x.cast::<f32>()) / count)
    });
    let body = |[of_weight, of_bias]: Pair, index: Scalar<i32>, row: Option<(Tile<T, 4>, Tile<f32, 4>)>| {
        let at = place(index);
        let dy = dy.load(at, shape).cast::<f32>();
        let weighted = dy * weight();
        let (x, level, squares, along, next) = match row {
            Some((this, mean)) => {
                // The mean of the next row is one of the sums of this row: threads exchange sums
                // once for each row.
                let next = x.load(place((index + step).min(end - 1)), shape);
                let x = rows.inside(this.cast::<f32>() - mean, part, columns);
                let terms = [next.cast::<f32>(), weighted, x * x, weighted * x];
                let sums = ct::reduce(terms, 3, [0.0; 4], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]);
                let [sum, level, squares, along] = rows.all(sums);
                (x, Some(level / count), squares, along, Some((next, sum / count)))
            }
            None => {
                let x = x.load(at, shape).cast::<f32>();
                let [squares, along] = rows.sums([x * x, weighted * x]);
                (x, None, squares, along, None)
            }
        };
        // Rows after the last one are zeros, whose scale is finite for every epsilon.
        let scale = (squares / count + epsilon).max(f32::MIN_POSITIVE).rsqrt();
        let normal = x * scale;
        let along = along * scale / count;
        let level = level.map_or(weighted, |level| weighted - level);
        let result = (level - normal * along) * scale;
        let result = dsum.map_or(result, |dsum| result + dsum.load(at, shape).cast::<f32>());
        dx.store(at, result.cast::<T>());
        ([dy.fma(normal, of_weight), if centered { of_bias + dy } else { of_bias }], next)
    };
    let all = ct::range(rows.row, end).step(step);
    let [of_weight, of_bias] = match first {
        Some((x, mean)) => {
            let start = ([zeros(), zeros()], x, mean);
            ct::fold(all, start, |(sums, x, mean), index| match body(sums, index, Some((x, mean))) {
                (sums, Some((x, mean))) => (sums, x, mean),
                (sums, None) => (sums, x, mean),
            })
            .0
        }
        None => ct::fold(all, [zeros(), zeros()], |sums, index| body(sums, index, None).0),
    };
    let store = |array: ArrayMut<f32, 2>, sums: Tile<f32, 4>| {
        array.store((rows.row, part), sums.sum(2).reshape([1, form.tile]));
    };
    store(dweight, of_weight);
    if let Some(dbias) = dbias {
        store(dbias, of_bias);
    }
}

/// The mean of a row, the inverse deviation s, the mean of g, and that of g n.
const STATISTICS: usize = 4;

/// Stores the statistics of a row, of shape (.., rows, 4).
fn statistics<T: Number>(
    (x, dy, _, weight): Inputs<T>,
    result: ArrayMut<f32, 4>,
    epsilon: Scalar<f32>,
    Constants { form, centered, .. }: Constants,
) {
    let (rows, shape, columns) = (form.here(), form.shape(), x.extent(3));
    let count = columns.cast::<f32>();
    let load = |at: [Scalar<i32>; 4]| {
        let weight = weight.load(at[3], [form.tile]).cast::<f32>().reshape([1, 1, 1, form.tile]);
        let [x, dy] = [x, dy].map(|array| array.load(at, shape).cast::<f32>());
        [x, dy * weight]
    };
    // Sums over the row of two terms of a chunk.
    let sums = |terms: &dyn Fn(Pair, Scalar<i32>, bool) -> Pair| {
        let start = [ct::zeros::<f32, 4>(shape), ct::zeros(shape)];
        rows.sums(rows.fold(columns, start, |[a, b], j, padded| {
            let [x, y] = terms(load(rows.chunk(j)), j, padded);
            [a + x, b + y]
        }))
    };
    let [mean, level] = match centered {
        true => sums(&|tiles, _, _| tiles).map(|sum| sum / count),
        false => [ct::zeros([1; 4]), ct::zeros([1; 4])],
    };
    let [squares, along] = sums(&|[x, weighted], j, padded| {
        let x = if centered { x - mean } else { x };
        let x = if centered && padded { rows.inside(x, j, columns) } else { x };
        [x * x, x * weighted]
    });
    let scale = (squares / count + epsilon).rsqrt();
    let all = ct::cat([mean, scale, level, along * scale / count], 3);
    result.store((ct::bid(2), ct::bid(1), rows.row, ct::scalar(0)), all);
}

/// Rows and columns of a tile of the second pass.
const TILE: [usize; 2] = [8, 512];

/// Gradients of some columns, for every n-th tile of rows.
fn columns<T: Number>(
    (x, dy, dsum, weight): Inputs<T>,
    statistics: Array<f32, 4>,
    dx: ArrayMut<T, 4>,
    (dweight, dbias): (ArrayMut<f32, 2>, Option<ArrayMut<f32, 2>>),
    centered: bool,
) {
    let (j, group, shape) = (ct::bid(0), ct::bid(1), [1, 1, TILE[0], TILE[1]]);
    let weight = weight.load(j, [TILE[1]]).cast::<f32>().reshape([1, 1, 1, TILE[1]]);
    let [outer, middle, inner] = [0, 1, 2].map(|axis| x.num_tiles(axis, shape));
    let all = ct::range(group, outer * middle * inner).step(ct::num_blocks(1));
    let start = [ct::zeros::<f32, 4>(shape), ct::zeros(shape)];
    let [of_weight, of_bias] = ct::fold(all, start, |[of_weight, of_bias], index| {
        let row = [index / inner / middle, index / inner % middle, index % inner];
        let at = [row[0], row[1], row[2], j];
        let [x, dy] = [x, dy].map(|array| array.load(at, shape).cast::<f32>());
        let zero = ct::scalar(0);
        let of_rows = statistics.load((row[0], row[1], row[2], zero), [1, 1, TILE[0], STATISTICS]);
        let [mean, scale, level, along] = of_rows.split(3);
        let normal = if centered { (x - mean) * scale } else { x * scale };
        let weighted = dy * weight;
        let weighted = if centered { weighted - level } else { weighted };
        let result = (weighted - normal * along) * scale;
        let result = dsum.map_or(result, |dsum| result + dsum.load(at, shape).cast::<f32>());
        dx.store(at, result.cast::<T>());
        [dy.fma(normal, of_weight), if centered { of_bias + dy } else { of_bias }]
    });
    let store =
        |array: ArrayMut<f32, 2>, sums: Tile<f32, 4>| array.store((group, j), sums.sum(2).reshape([1, TILE[1]]));
    store(dweight, of_weight);
    if let Some(dbias) = dbias {
        store(dbias, of_bias);
    }
}

/// Returns the longest row of one pass. Two sums of each column, or numbers of f32, leave registers
/// for half of it.
fn longest<T>(centered: bool) -> usize {
    if centered || size_of::<T>() > 2 { LONGEST_TILE / 2 } else { LONGEST_TILE }
}

/// Returns the hints of the single pass, the fastest ones for 16384 rows of 4096 columns on an
/// H100: 159 us with the mean and 16 warps of one block (4 warps of two blocks: 171 us), 157 us
/// without it and 4 warps of two blocks (16 warps: 165 us).
fn hints(form: Form, centered: bool) -> ct::Hints {
    if form.parts > 1 {
        return ct::Hints::new().num_warps((form.tile / 1024) as u32);
    }
    match (form.rows * form.tile / 1024).clamp(4, 16) {
        warps if !centered => ct::Hints::new().num_warps(warps as u32),
        _ => ct::Hints::new(),
    }
}

/// Arrays of a gradient.
pub struct Gradient<'a, T, const R: usize> {
    /// Operand of the norm: the sum, where there is a residual.
    pub x: DeviceView<'a, T, R>,
    pub weight: DeviceView<'a, T, 1>,
    pub dy: DeviceView<'a, T, R>,
    /// Gradient of the sum with the residual from its other uses.
    pub dsum: Option<DeviceView<'a, T, R>>,
    pub dx: DeviceViewMut<'a, T, R>,
    pub dweight: DeviceViewMut<'a, T, 1>,
    /// Layer norm.
    pub dbias: Option<DeviceViewMut<'a, T, 1>>,
}

/// Queues the gradients.
#[track_caller]
pub fn launch<T: Number, const R: usize>(stream: &Stream, gradient: Gradient<T, R>, epsilon: f32) -> ct::Result<()> {
    let Gradient { x, weight, dy, dsum, dx, dweight, dbias } = gradient;
    let shape = x.shape();
    require(dy.shape() == shape && dx.shape() == shape && dsum.is_none_or(|dsum| dsum.shape() == shape), || {
        format!("gradient of a norm of an array of {shape:?}, dy of {:?}, dx of {:?}", dy.shape(), dx.shape())
    })?;
    let columns = four(shape, false)[3];
    let lengths = [weight.len(), dweight.len(), dbias.as_ref().map_or(columns, |d| d.len())];
    require(lengths == [columns; 3], || {
        format!("rows of {columns} columns, and a weight and its gradients of {lengths:?} elements")
    })?;
    if columns == 0 {
        return Ok(());
    }
    let all = collapses(x) && collapses(dy) && collapses(dx.as_view()) && dsum.is_none_or(collapses);
    let shape = four(shape, all);
    let constants =
        |form: Form| ct::Constant(Constants { form, centered: dbias.is_some(), flat: shape[0] * shape[1] == 1 });
    // Two blocks share a row: 218 us for 4096 rows of 16384 columns on an H100, 346 us by two
    // passes. Clusters of 16 wait longer for each other: 947 and 496 us for 1024 rows of 131072
    // columns.
    let largest = if is_hopper(target(stream)) { 2 } else { 1 };
    let longest = longest::<T>(dbias.is_some());
    let (in_one_pass, multiprocessors) = (columns <= largest * longest, num_multiprocessors(stream));
    // The form of the first pass, whose blocks iterate over rows if it is the only one.
    let elements = if size_of::<T>() == 2 { 4096 } else { 2048 };
    let form = if in_one_pass && columns <= longest {
        Form::new(shape, elements, stream).sized::<T>(shape)
    } else if in_one_pass {
        Form::with_clusters(shape, elements, longest, largest)
    } else {
        Form::chunks(shape).sized::<T>(shape)
    };
    let rows = if in_one_pass { form.rows } else { TILE[0] };
    let tiles = shape[0] * shape[1] * shape[2].div_ceil(rows);
    let parts = if in_one_pass { 1 } else { columns.div_ceil(TILE[1]) };
    let blocks = match in_one_pass {
        true if form.parts > 1 => multiprocessors / form.parts,
        true => multiprocessors * (if dbias.is_some() { 4096 } else { 8192 } / form.tile).clamp(1, 4),
        false => (8 * multiprocessors).div_ceil(parts),
    };
    let (blocks, device) = (blocks.min(tiles).max(1), stream.device());
    // Without rows, no block stores sums.
    let sums = || match tiles {
        0 => device.zeros::<f32, 2>([blocks, columns]),
        _ => device.unspecified([blocks, columns]),
    };
    let mut of_weight = sums()?;
    let mut of_bias = dbias.as_ref().map(|_| sums()).transpose()?;
    if tiles > 0 {
        let dsum = dsum.map(|dsum| dsum.reshape(shape)).transpose()?;
        let inputs = (x.reshape(shape)?, dy.reshape(shape)?, dsum, weight);
        let sums = (of_weight.view_mut(), of_bias.as_mut().map(|sums| sums.view_mut()));
        let dx = dx.reshape(shape)?;
        if in_one_pass {
            let arguments = (inputs, dx, sums, epsilon, constants(form));
            ct::Launch::new(blocks * form.parts)
                .hints(hints(form, dbias.is_some()))
                .stream(stream)
                .run(kernel::<T>, arguments)?;
        } else {
            let mut of_rows = device.unspecified::<f32, 4>([shape[0], shape[1], shape[2], STATISTICS])?;
            let arguments = (inputs, &mut of_rows, epsilon, constants(form));
            form.launch(shape, stream).run(statistics::<T>, arguments)?;
            let arguments = (inputs, &of_rows, dx, sums, ct::Constant(dbias.is_some()));
            ct::Launch::new([parts, blocks]).stream(stream).run(self::columns::<T>, arguments)?;
        }
    }
    sum_rows(stream, of_weight.view(), dweight)?;
    match (of_bias, dbias) {
        (Some(sums), Some(dbias)) => sum_rows(stream, sums.view(), dbias),
        _ => Ok(()),
    }
}
