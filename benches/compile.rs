//! Compile times of kernels, from the first call to the text of the PTX, by their size: `cargo
//! bench --bench compile`. `-- chain 10000 sm_90a 1024` is one of them alone: its form, its size,
//! the target and the elements of a tile.

use std::time::{Duration, Instant};

use cutlet as ct;
use cutlet::prelude::*;

/// Body of a kernel of a given size.
type Form = fn(ArrayMut<f32, 1>, usize, usize);

/// Elementwise ops, one after another.
fn chain(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    let x = y.load([0], [tile]);
    let step = |x: Tile<f32, 1>, k| match k % 3 {
        0 => x + 1.5,
        1 => x * x,
        _ => (x - 2.0).max(y.load([k % 2], [tile])),
    };
    y.store([0], (0..n).fold(x, step));
}

/// A sum of tiles.
fn loads(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    let x = (1..n).fold(y.load([0], [tile]), |x, k| x + y.load([k], [tile]));
    y.store([0], x);
}

fn stores(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    (0..n).for_each(|k| y.store([k], ct::full([tile], k as f32)));
}

/// Tile after tile: loaded, changed, stored.
fn pieces(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    (0..n).for_each(|k| y.store([k], y.load([k], [tile]) * 2.0 + 1.0));
}

/// Work on numbers that only depend on the place in the tile.
fn indices(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    let x = (0..n).fold(ct::arange_from(tile, 0i32, 1), |x, k| if k % 2 == 0 { x + x } else { x ^ 5 });
    y.store([0], x.cast::<f32>());
}

fn loops(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    let turn = |x, _| ct::fold(..ct::num_blocks(0), x, |x: Tile<f32, 1>, i| x * 0.5 + i.cast::<f32>());
    y.store([0], (0..n).fold(y.load([0], [tile]), turn));
}

fn branches(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    let turn = |x: Tile<f32, 1>, k: usize| ct::if_else(ct::bid(0).gt(k as i32), || x + 1.0, || x * 3.0);
    y.store([0], (0..n).fold(y.load([0], [tile]), turn));
}

/// Loops in loops.
fn nest(y: ArrayMut<f32, 1>, depth: usize, tile: usize) {
    fn level(depth: usize, x: Tile<f32, 1>) -> Tile<f32, 1> {
        if depth == 0 {
            return x * 3.0;
        }
        ct::fold(..ct::num_blocks(0), x, |x, i| level(depth - 1, x + i.cast::<f32>()) + x * 3.0)
    }
    y.store([0], level(depth, y.load([0], [tile])));
}

fn reductions(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    y.store([0], (0..n).fold(y.load([0], [tile]), |x, _| x / x.sum(0)));
}

/// Each is some fifty instructions an element.
fn functions(y: ArrayMut<f32, 1>, n: usize, tile: usize) {
    y.store([0], (0..n).fold(y.load([0], [tile]), |x, _| x.sin()));
}

/// Forms, and the sizes that are tried.
const FORMS: [(&str, Form, [usize; 3]); 10] = [
    ("chain", chain, [100, 1000, 10_000]),
    ("loads", loads, [100, 1000, 10_000]),
    ("stores", stores, [100, 1000, 10_000]),
    ("pieces", pieces, [100, 1000, 10_000]),
    ("indices", indices, [100, 1000, 10_000]),
    ("loops", loops, [100, 1000, 10_000]),
    ("branches", branches, [100, 1000, 10_000]),
    ("nest", nest, [5, 10, 20]),
    ("reductions", reductions, [10, 100, 1000]),
    ("functions", functions, [10, 30, 100]),
];

/// Time and length of the text.
fn compile(form: Form, size: usize, target: ct::Target, tile: usize) -> ct::Result<(Duration, usize)> {
    let array = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
    let start = Instant::now();
    let kernel = move |y: ArrayMut<f32, 1>, size: usize, tile: usize| form(y, size, tile);
    let text = ct::inspect(kernel, (array, Constant(size), Constant(tile))).target(target).ptx()?;
    Ok((start.elapsed(), text.len()))
}

fn print(name: &str, form: Form, size: usize, target: ct::Target, tile: usize) -> ct::Result<()> {
    let (time, bytes) = compile(form, size, target, tile)?;
    println!(
        "{name:<12} {size:>6}  {target:<7} tile {tile:>6}  {:>10.1} ms  {bytes:>9} bytes",
        time.as_secs_f64() * 1e3
    );
    Ok(())
}

fn main() -> ct::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [name, size, target, tile] = &arguments[..] {
        let (_, form, _) = FORMS.iter().find(|(other, ..)| other == name).expect("a form");
        return print(
            name,
            *form,
            size.parse().expect("a size"),
            target.parse().expect("a target"),
            tile.parse().expect("a tile"),
        );
    }
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        for (name, form, sizes) in FORMS {
            sizes.into_iter().try_for_each(|size| print(name, form, size, target, 1024))?;
        }
    }
    // A thread has 16 elements of each tile and more, which go piece by piece.
    for (name, form, sizes) in &FORMS[..4] {
        sizes[..2].iter().try_for_each(|&size| print(name, *form, size, ct::Target::SM_90A, 1 << 16))?;
    }
    Ok(())
}
