//! Harness of elementwise operations: kernels that apply one operation, chosen by a constant, to
//! whole arrays with ragged edges.

use std::hash::{Hash, Hasher};

use anyhow::Result;
use cutlet as ct;
use cutlet::FloatMode;
use cutlet::prelude::*;

use crate::data::specials;
use crate::harness::{Session, Want, ravel};

/// Shape of the arrays: no extent is a multiple of a tile's.
pub const SHAPE: [usize; 2] = [33, 61];
/// Elements of such an array.
pub const COUNT: usize = SHAPE[0] * SHAPE[1];
const TILE: [usize; 2] = [16, 32];

/// An operation under its name: equal names are equal operations of one type.
#[derive(Clone, Copy)]
pub struct Named<F> {
    pub name: &'static str,
    pub op: F,
}

impl<F> PartialEq for Named<F> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl<F> Eq for Named<F> {}
impl<F> Hash for Named<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// An operation on one tile.
pub type Unary<A, Y> = fn(Tile<A, 2>) -> Tile<Y, 2>;
/// An operation on two tiles.
pub type Binary<A, B, Y> = fn(Tile<A, 2>, Tile<B, 2>) -> Tile<Y, 2>;
/// An operation on up to three tiles of one type, in a mode.
pub type Moded<T> = fn(Tile<T, 2>, Tile<T, 2>, Tile<T, 2>, FloatMode) -> Tile<T, 2>;

fn unary_kernel<A: Element, Y: Element>(a: Array<A, 2>, y: ArrayMut<Y, 2>, operation: Named<Unary<A, Y>>) {
    let at = [ct::bid(0), ct::bid(1)];
    y.store(at, (operation.op)(a.load(at, TILE)));
}

fn binary_kernel<A: Element, B: Element, Y: Element>(
    a: Array<A, 2>,
    b: Array<B, 2>,
    y: ArrayMut<Y, 2>,
    operation: Named<Binary<A, B, Y>>,
) {
    let at = [ct::bid(0), ct::bid(1)];
    y.store(at, (operation.op)(a.load(at, TILE), b.load(at, TILE)));
}

fn moded_kernel<T: Element>(
    a: Array<T, 2>,
    b: Array<T, 2>,
    c: Array<T, 2>,
    y: ArrayMut<T, 2>,
    (operation, mode): (Named<Moded<T>>, FloatMode),
) {
    let at = [ct::bid(0), ct::bid(1)];
    y.store(at, (operation.op)(a.load(at, TILE), b.load(at, TILE), c.load(at, TILE), mode));
}

fn grid(shape: [usize; 2]) -> [usize; 2] {
    [shape[0].div_ceil(TILE[0]), shape[1].div_ceil(TILE[1])]
}

/// y = op(a) for an array of any length, which is padded to whole rows.
pub fn check_unary<A: Element, Y: Element>(
    session: Session,
    name: &'static str,
    op: Unary<A, Y>,
    a: &[A],
    want: impl Fn(A) -> Want,
) -> Result<()> {
    run_unary(session, name, op, a, &want)
}

fn run_unary<A: Element, Y: Element>(
    session: Session,
    name: &'static str,
    op: Unary<A, Y>,
    a: &[A],
    want: &dyn Fn(A) -> Want,
) -> Result<()> {
    let shape = [a.len().div_ceil(SHAPE[1]), SHAPE[1]];
    let mut padded = a.to_vec();
    padded.resize(shape[0] * shape[1], a[0]);
    let device_a = session.array(&padded, shape)?;
    let mut y = session.unwritten::<Y, 2>(shape)?;
    session.launch(unary_kernel, grid(shape), (&device_a, &mut y, ct::Constant(Named { name, op })))?;
    session.check_results(name, &y, &|at| want(padded[ravel(at, shape)]), &|at| {
        format!("from {:?}", padded[ravel(at, shape)])
    })
}

/// y = op(a, b).
pub fn check_binary<A: Element, B: Element, Y: Element>(
    session: Session,
    name: &'static str,
    op: Binary<A, B, Y>,
    a: &[A],
    b: &[B],
    want: impl Fn(A, B) -> Want,
) -> Result<()> {
    run_binary(session, name, op, a, b, &want)
}

fn run_binary<A: Element, B: Element, Y: Element>(
    session: Session,
    name: &'static str,
    op: Binary<A, B, Y>,
    a: &[A],
    b: &[B],
    want: &dyn Fn(A, B) -> Want,
) -> Result<()> {
    let (device_a, device_b) = (session.array(a, SHAPE)?, session.array(b, SHAPE)?);
    let mut y = session.unwritten::<Y, 2>(SHAPE)?;
    session.launch(binary_kernel, grid(SHAPE), (&device_a, &device_b, &mut y, ct::Constant(Named { name, op })))?;
    let inputs = |at| (a[ravel(at, SHAPE)], b[ravel(at, SHAPE)]);
    session.check_results(name, &y, &|at| want(inputs(at).0, inputs(at).1), &|at| format!("from {:?}", inputs(at)))
}

/// y = op(a, b, c) in a mode.
pub fn check_moded<T: Element>(
    session: Session,
    name: &'static str,
    op: Moded<T>,
    mode: FloatMode,
    inputs: [&[T]; 3],
    want: impl Fn([f64; 3]) -> Want,
) -> Result<()> {
    run_moded(session, name, op, mode, inputs, &want)
}

fn run_moded<T: Element>(
    session: Session,
    name: &'static str,
    op: Moded<T>,
    mode: FloatMode,
    inputs: [&[T]; 3],
    want: &dyn Fn([f64; 3]) -> Want,
) -> Result<()> {
    let [a, b, c] = inputs.map(|input| session.array(input, SHAPE));
    let mut y = session.unwritten::<T, 2>(SHAPE)?;
    let constant = ct::Constant((Named { name, op }, mode));
    session.launch(moded_kernel, grid(SHAPE), (&a?, &b?, &c?, &mut y, constant))?;
    let values = |at| inputs.map(|input| input[ravel(at, SHAPE)].to_f64());
    session
        .check_results(&format!("{name} {mode:?}"), &y, &|at| want(values(at)), &|at| format!("from {:?}", values(at)))
}

/// Two inputs whose first pairs are all pairs of special values, the rest as given.
pub fn with_special_pairs<A: Element, B: Element>(mut a: Vec<A>, mut b: Vec<B>) -> (Vec<A>, Vec<B>) {
    let (first, second) = (specials::<A>(), specials::<B>());
    for (i, &x) in first.iter().enumerate() {
        for (j, &y) in second.iter().enumerate() {
            let position = i * second.len() + j;
            if position < a.len() {
                (a[position], b[position]) = (x, y);
            }
        }
    }
    (a, b)
}
