//! Accesses with an order: one block observes its own accesses in program order, for all memory
//! orders.

use super::row::*;
use super::store::{places, write};

/// The elements of the block's tile, columns exchanged.
fn own(e: &mut Eval<'_, '_>) -> Vec<Values> {
    let (form, origin, b) = (e.form(0), e.origin(), e.n(0) as usize % (1 << e.form(0).shape[1].trailing_zeros()));
    let array = e.output(form.kind).clone();
    let element = |i: usize, j: usize| array.inside((origin[0] + i) as i128, (origin[1] + (j ^ b)) as i128);
    e.build(|i, j| element(i, j).unwrap_or(form.kind.zero()))
}

macro_rules! gathers {
    ($name:literal $order:ident $scope:ident) => {
        op! { $name in "orders", 4; args [] kinds ordered; numbers [(0, 63)]; tile;
        [U: atomic] |; b: usize; output: ArrayMut<U, 2>, at: At, shape: Shape| {
            let rows = at[0] * shape[0] + ct::indices(shape, 0);
            let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
            output.gather_with((rows, columns), ct::GatherOptions::new().$order(ct::Scope::$scope))
        }
        own }
    };
}
macro_rules! scatters {
    ($name:literal $order:ident $scope:ident) => {
        op! { $name in "orders", 4; args [Of(ordered)]; numbers [(0, 63)];
            |typing, _, args| super::super::program::stretches(args[0].shape, typing.tile).then(Vec::new);
            [T: atomic] |x: Tile<T, 2>; b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
                let rows = at[0] * shape[0] + ct::indices(shape, 0);
                let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
                output.scatter_with((rows, columns), x.broadcast_to(shape), ct::ScatterOptions::new().$order(ct::Scope::$scope))
            }
            |e| {
                let (tile, a, b) = (e.machine.program.tile, e.arg(0), e.n(0) as usize);
                let elements: Vec<_> = places(tile).map(|[i, j]| ([i, j ^ (b % (1 << tile[1].trailing_zeros()))], a.stretched(i, j))).collect();
                write(e, a.kind, elements);
                vec![]
            } }
    };
}

fn ordered(kind: Kind) -> bool {
    atomic(kind)
}

pub const OPS: &[Op] = &[
    gathers!("gather acquire" acquire Device),
    gathers!("gather relaxed" relaxed System),
    scatters!("scatter release" release Device),
    scatters!("scatter relaxed" relaxed Block),
    op! { "entry load acquire" in "orders", 3; args [Single(i32s)] kinds ordered; numbers [];
    |_, step, _| Some(vec![Form::new(step.kind, [1, 1])]);
    [U: atomic] |y: Tile<i32, 2>; ; output: ArrayMut<U, 2>, corner: Corner| {
        let options = ct::GatherOptions::new().acquire(ct::Scope::Device);
        output.entry((corner.0[0], corner.0[1] + (y.item() & 3))).load_with(options).to_tile::<2>()
    }
    |e| {
        let (column, origin, kind) = ((e.item(0).int() & 3) as usize, e.origin(), e.step.kind);
        let x = e.output(kind).inside(origin[0] as i128, (origin[1] + column) as i128);
        e.build(|_, _| x.unwrap_or(Number::Int(0)))
    } },
    op! { "entry store release" in "orders", 3; args [Single(ordered), Single(i32s)]; numbers []; nothing;
    [T: atomic] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, corner: Corner| {
        let options = ct::ScatterOptions::new().release(ct::Scope::Device);
        output.entry((corner.0[0], corner.0[1] + (y.item() & 3))).store_with(x.item(), options)
    }
    |e| {
        let (column, x, kind) = ((e.item(1).int() & 3) as usize, e.item(0), e.arg(0).kind);
        write(e, kind, [([0, column], x)]);
        vec![]
    } },
];
