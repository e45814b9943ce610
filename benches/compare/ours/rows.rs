//! The rows: which kernels of `examples/` run at which sizes, and the tile sizes and hints to
//! choose from.
//!
//! A row's name is kernel, element type and numbers; `benches/compare/rows.py` has the same names,
//! the inputs and the references.

use anyhow::{Context, Result, bail, ensure};
use cutlet as ct;
use cutlet::element::{CastTo, Element, MmaInput};
use cutlet::prelude::*;
use cutlet::{Device, Hints};

use super::configuration::{Call, Configurations, NO_HINTS, Place, Row, tileir_rows, warps};
use super::{attention_f8, backward, examples, kernels, movement, narrow, numbers, order, scaled, tutorial};

/// Opens the row of this name.
///
/// # Errors
/// When there is none, or its arrays do not fit into memory.
pub fn open(name: &str, place: Place) -> Result<Box<dyn Row>> {
    // A kernel that the tutorial shows has the name of the row with `tutorial` before it.
    let shown = name.strip_prefix("tutorial ");
    let words: Vec<&str> = shown.unwrap_or(name).split_whitespace().collect();
    let [kernel, element, numbers @ ..] = &words[..] else { bail!("row `{name}`: kernel, type and sizes are needed") };
    // The last word of attention is `causal` or `full`.
    let (numbers, mask) = match numbers {
        [numbers @ .., mask @ ("causal" | "full")] => (numbers, Some(*mask)),
        numbers => (numbers, None),
    };
    let numbers: Vec<usize> =
        numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>().with_context(|| format!("row `{name}`"))?;
    let causal = mask == Some("causal");
    if shown.is_some() {
        ensure!(!causal, "row `{name}`: the kernel of the tutorial has no mask");
        return tutorial::open(place, kernel, element, &numbers);
    }
    Ok(match (*kernel, *element, &numbers[..]) {
        ("vadd", "f32", &[n]) => vadd(place, n)?,
        ("saxpy", "f32", &[n]) => saxpy(place, n)?,
        ("transpose", "f32", &[m, n]) => transpose(place, m, n)?,
        ("softmax", "f32", &[m, n]) => softmax(place, m, n)?,
        ("layernorm", "f32", &[m, n]) => layernorm(place, m, n)?,
        ("layernorm_backward", "f32", &[m, n]) => layernorm_backward(place, m, n)?,
        ("matmul", "f16", &[m, n, k]) => matmul::<f16, f16, f16>(place, [m, n, k], false, 2)?,
        ("matmul", "bf16", &[m, n, k]) => matmul::<bf16, bf16, bf16>(place, [m, n, k], false, 2)?,
        ("matmul", "tf32", &[m, n, k]) => matmul::<f32, tf32, f32>(place, [m, n, k], false, 4)?,
        ("matmul", "e4m3", &[m, n, k]) => matmul::<f8e4m3fn, f8e4m3fn, f16>(place, [m, n, k], true, 1)?,
        ("scaled_matmul", "e4m3", &[m, n, k]) => scaled::scaled_matmul(place, [m, n, k])?,
        ("batched_matmul", "f16", &[batch, m, n, k]) => batched_matmul::<f16, f16>(place, [batch, m, n, k], 2)?,
        ("batched_matmul", "tf32", &[batch, m, n, k]) => batched_matmul::<f32, tf32>(place, [batch, m, n, k], 4)?,
        ("attention", "f16", &[batch, heads, seq, dim]) => attention::<f16>(place, [batch, heads, seq, dim], causal)?,
        ("attention", "bf16", &[batch, heads, seq, dim]) => attention::<bf16>(place, [batch, heads, seq, dim], causal)?,
        ("attention", "e4m3", &[batch, heads, seq, dim]) => {
            attention_f8::attention_f8(place, [batch, heads, seq, dim], causal)?
        }
        ("attention_backward", "bf16", &[batch, heads, seq, dim]) => {
            backward::attention_backward::<bf16>(place, [batch, heads, seq, dim], causal)?
        }
        ("vadd_gather", "f32", &[n]) => movement::vadd_gather(place, n)?,
        ("gather", "f32", &[n, from]) => movement::gather(place, n, from)?,
        ("scatter", "f32", &[n]) => movement::scatter(place, n)?,
        ("cumsum", "f32", &[m, n]) => movement::cumsum(place, m, n)?,
        ("prefix_sum", "i32", &[n]) => movement::prefix_sum::<i32>(place, n)?,
        ("prefix_sum", "f32", &[n]) => movement::prefix_sum::<f32>(place, n)?,
        ("histogram", "u8", &[n]) => movement::histogram(place, n)?,
        ("stencil", "f32", &[m, n]) => movement::stencil(place, m, n)?,
        ("embedding", "f16", &[rows, columns, ids]) => movement::embedding(place, rows, columns, ids)?,
        ("argmax", "f32", &[m, n]) => movement::argmax(place, m, n)?,
        ("welford", "f32", &[m, n]) => movement::welford(place, m, n)?,
        ("random_normal", "f32", &[n]) => numbers::random(place, n, true)?,
        ("random_uniform", "f32", &[n]) => numbers::random(place, n, false)?,
        ("dropout", "f32", &[n]) => numbers::dropout(place, n)?,
        ("sum", "f32", &[n]) => numbers::sum(place, n)?,
        ("fft", "c64", &[m, n]) => numbers::fft(place, m, n)?,
        ("sort", "f32", &[m, n]) => order::sort(place, m, n)?,
        ("top_k", "f32", &[m, n, k]) if n <= 1024 => order::top_k(place, [m, n, k])?,
        ("top_k", "f32", &[m, n, k]) => order::top_k_of_many(place, [m, n, k])?,
        ("quantized_matmul", "u4", &[m, n, k]) => narrow::quantized_matmul(place, [m, n, k])?,
        _ => bail!("no row `{name}`"),
    })
}

fn vadd(place: Place, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[a, b, c]: &mut Set, call| {
            call.run(n.div_ceil(tile), examples::vadd::vadd, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn saxpy(place: Place, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(n.div_ceil(tile), examples::saxpy::saxpy, (0.75f32, &*x, y, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn transpose(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([n, m])?]))?;
    for [tm, tn] in [[32, 32], [64, 32], [32, 64], [64, 64], [128, 64], [64, 128], [128, 128]] {
        let grid = [m.div_ceil(tm), n.div_ceil(tn)];
        row = row.with(format!("tile {tm}x{tn}"), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(grid, examples::transpose::transpose, (&*x, y, Constant([tm, tn])))
        });
    }
    Ok(Box::new(row))
}

fn softmax(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, examples::softmax::softmax, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    for (label, hints) in tileir_rows() {
        row = row.with_tileir(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, examples::softmax::softmax, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

fn layernorm(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    use examples::layernorm::{EPSILON, layernorm};
    type Set = (ct::DeviceArray<f32, 2>, [ct::DeviceArray<f32, 1>; 2], ct::DeviceArray<f32, 2>);
    let addresses = |(x, [w, b], y): &Set| vec![x.address(), w.address(), b.address(), y.address()];
    let make = |d: Device| Ok((d.zeros([m, n])?, [d.zeros([n])?, d.zeros([n])?], d.zeros([m, n])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |(x, [w, b], y): &mut Set, call| {
            call.run(m, layernorm, (&*x, &*w, &*b, y, EPSILON, Constant(n)))
        });
    }
    for (label, hints) in tileir_rows() {
        row = row.with_tileir(label, hints, move |(x, [w, b], y): &mut Set, call| {
            call.run(m, layernorm, (&*x, &*w, &*b, y, EPSILON, Constant(n)))
        });
    }
    Ok(Box::new(row))
}

/// Rows that the partial sums of [`layernorm_backward`] have, as in `rows.py`.
const PARTS: usize = 528;

fn layernorm_backward(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    use examples::layernorm_backward::{columns, rows};
    // dy, x, dx, parts of dweight and dbias; weight, mean, rstd, dweight, dbias.
    type Set = ([ct::DeviceArray<f32, 2>; 5], [ct::DeviceArray<f32, 1>; 5]);
    let addresses = |([dy, x, dx, dw_parts, db_parts], [w, mean, rstd, dw, db]): &Set| {
        let (dy, x, dx) = (dy.address(), x.address(), dx.address());
        let parts = [dw_parts.address(), db_parts.address()];
        vec![dy, x, w.address(), mean.address(), rstd.address(), dx, dw.address(), db.address(), parts[0], parts[1]]
    };
    let make = |d: Device| {
        let matrices =
            [d.zeros([m, n])?, d.zeros([m, n])?, d.zeros([m, n])?, d.zeros([PARTS, n])?, d.zeros([PARTS, n])?];
        Ok((matrices, [d.zeros([n])?, d.zeros([m])?, d.zeros([m])?, d.zeros([n])?, d.zeros([n])?]))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    let stages = |n| (format!("{n} stages"), NO_HINTS.num_stages(n));
    for blocks in [1, 2, 4].map(|each| (each * place.num_multiprocessors()).min(m).min(PARTS)) {
        let each = (blocks / place.num_multiprocessors()).max(1) as u32;
        let occupancy = |n| (format!("{n} warps occupancy {each}"), NO_HINTS.num_warps(n).occupancy(each));
        let all = warps().chain([1, 3, 4].map(stages)).map(|choice| (choice, false));
        for ((label, hints), tileir) in all.chain([4, 8].map(|n| (occupancy(n), true))) {
            let label = format!("{blocks} blocks, {label}");
            let body = move |(matrices, vectors): &mut Set, call: &mut Call| {
                let ([dy, x, dx, dw_parts, db_parts], [w, mean, rstd, dw, db]) = (matrices, vectors);
                let (mut dw_parts, mut db_parts) =
                    (dw_parts.view_mut().slice(0, ..blocks)?, db_parts.view_mut().slice(0, ..blocks)?);
                let parts = (&mut dw_parts, &mut db_parts);
                call.run(blocks, rows, (&*dy, &*x, &*w, &*mean, &*rstd, dx, parts.0, parts.1, Constant(n)))?;
                let arguments = (dw_parts.as_view(), db_parts.as_view(), dw, db, Constant([64, 32]));
                call.run(n.div_ceil(32), columns, arguments)
            };
            row = if tileir { row.with_tileir(label, hints, body) } else { row.with(label, hints, body) };
        }
    }
    Ok(Box::new(row))
}

/// Hints with which tile blocks run in pairs.
const PAIRS: Hints = NO_HINTS.num_ctas(2);

/// Tiles of products. In the direction of the sums they hold 128 bytes, which is a row of the
/// widest swizzle, or half of it.
fn product_tiles(bytes: usize) -> Vec<([usize; 3], Hints)> {
    let mut tiles = Vec::new();
    for depth in [128 / bytes, 64 / bytes] {
        for [tm, tn] in [[128, 128], [128, 256], [256, 128]] {
            tiles.push(([tm, tn, depth], NO_HINTS));
            tiles.push(([tm, tn, depth], PAIRS));
        }
        for num_warps in [4, 8] {
            tiles.push(([128, 128, depth], NO_HINTS.num_warps(num_warps)));
        }
    }
    // Tiles for four warps, so that two ping-pong groups alternate.
    for [tm, tn] in [[128, 192], [128, 128], [192, 128]] {
        tiles.push(([tm, tn, 128 / bytes], PAIRS.num_warps(4)));
    }
    tiles.push(([128, 192, 128 / bytes], NO_HINTS.num_warps(4)));
    tiles
}

/// Further tiles of products of the tileir back end: those of cuTile Python's kernels.
fn tileir_product_tiles(bytes: usize) -> Vec<([usize; 3], Hints)> {
    let depth = 128 / bytes;
    let eight = NO_HINTS.num_warps(8);
    vec![
        ([128, 128, depth], eight.num_ctas(2)),
        ([128, 256, depth], eight),
        ([128, 256, depth], eight.num_ctas(2)),
        ([256, 128, depth], eight),
        ([128, 128, 2 * depth], NO_HINTS.num_warps(4)),
        ([128, 128, 2 * depth], eight),
    ]
}

fn product_label<const N: usize>(tile: [usize; N], hints: Hints) -> String {
    let extents = tile.map(|extent| extent.to_string()).join("x");
    let warps = hints.num_warps.map(|n| format!(" {n} warps")).unwrap_or_default();
    let blocks = hints.occupancy.map(|n| format!(" {n} a multiprocessor")).unwrap_or_default();
    let pairs = hints.num_ctas.map(|n| format!(" {n} blocks a cluster")).unwrap_or_default();
    format!("{extents}{warps}{blocks}{pairs}")
}

/// `columns`: the second matrix is column-major.
fn matmul<T, I, O>(place: Place, [m, n, k]: [usize; 3], columns: bool, bytes: usize) -> Result<Box<dyn Row>>
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<O>,
    O: Element,
{
    use examples::matmul::{Form, matmul as matmul_kernel};
    type Set<T, O> = (ct::DeviceArray<T, 2>, ct::DeviceArray<T, 2>, ct::DeviceArray<O, 2>);
    let addresses = |(a, b, c): &Set<T, O>| vec![a.address(), b.address(), c.address()];
    let lying = if columns { [n, k] } else { [k, n] };
    let make = |d: Device| Ok((d.zeros([m, k])?, d.zeros(lying)?, d.zeros([m, n])?));
    let mut row = Configurations::new(place, addresses, make)?;
    let multiprocessors = place.num_multiprocessors();
    let all = product_tiles(bytes).into_iter().map(|(tile, hints)| (tile, hints, false));
    let all = all.chain(tileir_product_tiles(bytes).into_iter().map(|(tile, hints)| (tile, hints, true)));
    for (tile, hints, tileir) in all {
        let label = product_label(tile, hints);
        let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
        let mut forms = vec![("", false, false), (" persistent", true, false)];
        if T::DTYPE.is_float() && bytes == 1 {
            forms.push((" persistent, fast sums", true, true));
            forms.extend(tileir.then_some((", fast sums", false, true)));
        }
        for (what, persistent, fast_sums) in forms {
            let form = Form { tile, persistent, fast_sums };
            let blocks = if persistent { tiles.min(multiprocessors) } else { tiles };
            let body = move |(a, b, c): &mut Set<T, O>, call: &mut Call| {
                let b = if columns { b.transpose()? } else { b.view() };
                call.run(blocks, matmul_kernel::<T, I, f32, O>, (&*a, b, c, Constant(form)))
            };
            let label = format!("{label}{what}");
            row = if tileir { row.with_tileir(label, hints, body) } else { row.with(label, hints, body) };
        }
    }
    Ok(Box::new(row))
}

fn batched_matmul<T, I>(place: Place, [batch, m, n, k]: [usize; 4], bytes: usize) -> Result<Box<dyn Row>>
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    type Set<T> = [ct::DeviceArray<T, 3>; 3];
    let addresses = |set: &Set<T>| set.iter().map(|array| array.address()).collect();
    let make = |d: Device| Ok([d.zeros([batch, m, k])?, d.zeros([batch, k, n])?, d.zeros([batch, m, n])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    let multiprocessors = place.num_multiprocessors();
    for (tile, hints) in product_tiles(bytes) {
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch];
        let label = product_label(tile, hints);
        row = row.with(label.clone(), hints, move |[a, b, c]: &mut Set<T>, call| {
            call.run(grid, examples::batched_matmul::batched_matmul::<T, I>, (&*a, &*b, c, Constant(tile)))
        });
        let blocks = grid.iter().product::<usize>().min(multiprocessors);
        row = row.with(format!("{label} persistent"), hints, move |[a, b, c]: &mut Set<T>, call| {
            let kernel = examples::batched_matmul::batched_matmul_persistent::<T, I>;
            call.run(blocks, kernel, (&*a, &*b, c, Constant(tile)))
        });
    }
    for (tile, hints) in tileir_product_tiles(bytes) {
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch];
        row = row.with_tileir(product_label(tile, hints), hints, move |[a, b, c]: &mut Set<T>, call| {
            call.run(grid, examples::batched_matmul::batched_matmul::<T, I>, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn attention<T>(place: Place, [batch, heads, seq, dim]: [usize; 4], causal: bool) -> Result<Box<dyn Row>>
where
    T: MmaInput<T, f32> + Element,
    f32: CastTo<T>,
{
    use examples::attention::{Form, NO_LOGS, attention};
    type Set<T> = [ct::DeviceArray<T, 4>; 4];
    let addresses = |set: &Set<T>| set.iter().map(|array| array.address()).collect();
    let shape = [batch, heads, seq, dim];
    let make = |d: Device| Ok([d.zeros(shape)?, d.zeros(shape)?, d.zeros(shape)?, d.zeros(shape)?]);
    let mut row = Configurations::new(place, addresses, make)?;
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    // Rows of 256 numbers leave registers and shared memory for fewer keys.
    let of_long: &[[usize; 2]] = &[[128, 80], [128, 64], [128, 96], [64, 128], [64, 64]];
    let of_short: &[[usize; 2]] = &[[128, 128], [128, 64], [64, 128], [64, 64], [256, 64]];
    // Rows of 64 numbers leave registers for three groups of warps, each with queries of its own.
    let of_few: &[[usize; 2]] = &[[192, 128], [128, 128], [128, 64], [64, 128], [64, 64], [256, 64]];
    for &tile in match dim {
        ..=64 => of_few,
        65..=128 => of_short,
        _ => of_long,
    } {
        let form = Form { tile: [tile[0], tile[1], dim], group: 1, causal };
        let grid = [seq.div_ceil(tile[0]), heads, batch];
        let warps = (tile[0] == 256 && dim <= 64).then_some(NO_HINTS.num_warps(16));
        for hints in [NO_HINTS].into_iter().chain(warps) {
            row = row.with(product_label(tile, hints), hints, move |[q, k, v, out]: &mut Set<T>, call| {
                call.run(grid, attention::<T>, ((&*q, &*k, &*v), (out, NO_LOGS), scale, Constant(form)))
            });
        }
    }
    // Without room for a tile of 256 columns in registers there is one of fewer keys.
    let grids = [
        ([128, 128], 4),
        ([128, 128], 8),
        ([128, 64], 4),
        ([128, 64], 8),
        ([64, 128], 4),
        ([256, 64], 8),
        ([256, 128], 8),
    ];
    for (tile, num_warps) in grids {
        let hints = NO_HINTS.num_warps(num_warps).occupancy(1);
        let form = ([tile[0], tile[1], dim], causal);
        let grid = [seq.div_ceil(tile[0]), batch * heads];
        let label = format!("grid {}x{} {num_warps} warps", tile[0], tile[1]);
        row = row.with_tileir(label, hints, move |[q, k, v, out]: &mut Set<T>, call| {
            call.run(grid, kernels::attention_tile::<T>, ((&*q, &*k, &*v), out, scale, Constant(form)))
        });
    }
    Ok(Box::new(row))
}
