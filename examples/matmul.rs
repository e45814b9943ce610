//! Matrix product, for all element types of tensor cores: `cargo run --example matmul`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;

/// Constants of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Extents of a tile: rows, columns, and terms of an iteration.
    pub tile: [usize; 3],
    /// Blocks compute one tile of the result after another, instead of one each.
    pub persistent: bool,
    /// Sums of 8-bit floats may keep fewer bits than f32 has.
    pub fast_sums: bool,
}

/// Row and column of the `index`-th tile of the result. A group of rows (or columns) of tiles is
/// visited column by column, so that concurrent tiles share operands. Adjacent blocks share the
/// operand of the longer side of their tiles, which clusters of two load together.
fn place(index: Scalar<i32>, [rows, columns]: [Scalar<i32>; 2], [tm, tn, _]: [usize; 3]) -> [Scalar<i32>; 2] {
    let (along, across) = if tm > tn { (columns, rows) } else { (rows, columns) };
    let group = if tm > tn || tn >= 2 * tm { 16 } else { 8 };
    let in_group = across * group;
    let first = index / in_group * group;
    let height = (along - first).min(group);
    let (near, far) = (first + index % in_group % height, index % in_group / height);
    if tm > tn { [far, near] } else { [near, far] }
}

/// Arrays of `T`, multiplied as `I`, accumulated as `Acc`, stored as `O`.
pub fn matmul<T, I, Acc, O>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<O, 2>, form: Form)
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let [tm, tn, tk] = form.tile;
    let tiles = [0, 1].map(|axis| c.num_tiles(axis, [tm, tn]));
    let make = |index| {
        let [i, j] = place(index, tiles, form.tile);
        let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<Acc, 2>([tm, tn]), |acc, k| {
            let (a, b) = (a.load((i, k), [tm, tk]).cast::<I>(), b.load((k, j), [tk, tn]).cast::<I>());
            if form.fast_sums { ct::mma_fast_acc(a, b, acc) } else { ct::mma(a, b, acc) }
        });
        c.store((i, j), acc.cast::<O>());
    };
    match form.persistent {
        true => ct::fold(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |(), i| make(i)),
        false => make(ct::bid(0)),
    }
}

fn main() -> ct::Result<()> {
    let [m, n, k] = [200, 100, 150];
    let (x, y) = (|at: usize| (at as f32 * 0.37).sin(), |at: usize| (at as f32 * 0.11).cos());
    let (x, y) = (|i, j| f16::from_f32(x(i * k + j)), |i, j| f16::from_f32(y(i * n + j)));
    let device = ct::Device::first()?;
    let (a, b) = (device.from_fn([m, k], |[i, j]| x(i, j))?, device.from_fn([k, n], |[i, j]| y(i, j))?);
    for persistent in [false, true] {
        let mut c = device.zeros([m, n])?;
        let form = Form { tile: [64, 64, 32], persistent, fast_sums: false };
        let tiles = m.div_ceil(form.tile[0]) * n.div_ceil(form.tile[1]);
        let blocks = if persistent { tiles.min(device.num_multiprocessors()) } else { tiles };
        ct::launch(matmul::<f16, f16, f32, f16>, blocks, (&a, &b, &mut c, Constant(form)))?;

        let c = c.to_vec()?;
        // Errors are relative to the magnitude of the terms.
        let error = |at: usize| {
            let terms = || (0..k).map(|l| x(at / n, l).to_f64() * y(l, at % n).to_f64());
            (c[at].to_f64() - terms().sum::<f64>()).abs() / terms().map(f64::abs).sum::<f64>()
        };
        let error = (0..m * n).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
        println!("matmul: f16 {m} x {n} x {k}, {blocks} blocks, {}, largest error {error:.1e}", device.name());
        assert!(error <= 5e-4, "wrong results");
    }
    Ok(())
}
