//! Random kernels: each is generated from its number, run like any other test, and compared to the last
//! bit with an evaluation of its own in host arithmetic. Two of three kernels come to the edges of types, arrays and
//! ranges (`edges`); those whose number is one more than a multiple of three have the plain steps alone.
//!
//! `CUTLET_RANDOM_SEED` is the number of the first kernel (1), `CUTLET_RANDOM_COUNT` how many there are
//! (60). A failing test names its number: `CUTLET_RANDOM_SEED=n CUTLET_RANDOM_COUNT=1` runs it alone.

mod edges;
mod program;
mod reference;
mod trace;

use anyhow::{Context, Result};
use cutlet::prelude::*;

use self::program::{Kind, Program, generate, has_edges};
use self::reference::{Number, Values};
use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("CUTLET_RANDOM_SEED").unwrap_or(1);
    let count = number("CUTLET_RANDOM_COUNT").unwrap_or(60);
    for seed in first..first + count {
        suite.test(format!("random/{seed:05}"), move |session| {
            let program = generate(seed);
            check(session, seed, &program)
                .with_context(|| format!("random kernel {seed} (CUTLET_RANDOM_SEED={seed}): {program:#?}"))
        });
    }
}

fn numbers<T: Element>(kind: Kind, shape: [usize; 2], data: &[T]) -> Values {
    let number = |&x: &T| if kind.is_float() { Number::Float(x.to_f64()) } else { Number::Int(value(x)) };
    Values { kind, shape, data: data.iter().map(number).collect() }
}

fn check(session: Session, seed: u64, program: &Program) -> Result<()> {
    let (shape, tile) = (program.shape, program.tile);
    let count = shape[0] * shape[1];
    macro_rules! with {
        ($($name:ident $out:ident $ty:ident $kind:ident;)+) => {
            $(
                // Any bits on every second kernel: most results are then NaN or all sign. Sometimes corners alone.
                let spread = match seed % 2 {
                    _ if has_edges(seed) && seed % 5 == 0 => Spread::Corners,
                    0 => Spread::Any,
                    _ => Spread::Moderate,
                };
                let host = random::<$ty>(seed * 8 + Kind::$kind as u64, count, spread);
                let $name = (session.array(&host, shape)?, numbers(Kind::$kind, shape, &host));
                let mut $out = session.unwritten::<$ty, 2>(shape)?;
            )+
            let grid = [shape[0].div_ceil(tile[0]), shape[1].div_ceil(tile[1])];
            let constant = Constant(program.clone());
            session.launch(trace::kernel, grid, (($(&$name.0,)+), ($(&mut $out,)+), constant))?;
            if session.only_compiles() {
                return Ok(());
            }
            let inputs = [$($name.1),+];
            let cells = (0..grid[0]).flat_map(|i| (0..grid[1]).map(move |j| [i, j]));
            let blocks: Vec<_> = cells.map(|at| reference::block(program, &inputs, at)).collect();
            $(session.check(stringify!($kind), &$out, &|at| {
                let block = &blocks[ravel([at[0] / tile[0], at[1] / tile[1]], grid)];
                match &block[Kind::$kind as usize] {
                    None => Want::exactly(unwritten::<$ty>()),
                    Some(values) => match values.data[ravel([at[0] % tile[0], at[1] % tile[1]], tile)] {
                        Number::Float(x) => Want::nearest(x),
                        Number::Int(x) => crate::integer::wrapped::<$ty>(x),
                    },
                }
            })?;)+
        };
    }
    with! {
        a out_a f32 F32;
        b out_b f16 F16;
        c out_c bf16 Bf16;
        d out_d i32 I32;
        e out_e u8 U8;
        f out_f i64 I64;
        g out_g bool Bool;
    }
    Ok(())
}
