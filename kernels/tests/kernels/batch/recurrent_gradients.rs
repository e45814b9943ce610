//! Gradients of recurrences: the batch is the sequences.

use std::ops::Range;

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{DeviceView, Stream};
use cutlet_kernels::batch_invariant;
use cutlet_kernels::recurrent::{
    DeltaGradients, DeltaInputs, GatedDeltaRule, KimiDelta, Mamba2, Mamba2Gradients, Mamba2Inputs,
};

use super::recurrent::between;
use super::{always, bits, part, row_by_row, same};
use crate::support::{device, random};

/// Tokens, heads, and columns of keys and of values.
const TOKENS: usize = 70;
const HEADS: usize = 2;
const KEYS: usize = 24;
const VALUES: usize = 40;

/// Gradients of the results, and of the states after the last token.
type Behind<'a> = (DeviceView<'a, bf16, 4>, Option<DeviceView<'a, f32, 4>>);

/// Returns the gradients of a rule. `launch` has the states before the first token, too.
fn of_rule<const GATES: usize>(
    range: &Range<usize>,
    gates: [usize; GATES],
    launch: impl Fn(
        &Stream,
        DeltaInputs<bf16, GATES>,
        Behind,
        Option<DeviceView<f32, 4>>,
        DeltaGradients<bf16, GATES>,
    ) -> ct::Result<()>,
) -> ct::Result<Vec<u64>> {
    let [q, k] = [1, 2].map(|seed| between::<bf16, 4>(seed, [1, TOKENS, 1, KEYS], range, [-0.2, 0.4]));
    let [v, dy] = [3, 6].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, HEADS, VALUES], range));
    let [before, after] = [7, 8].map(|seed| part::<f32, 4>(seed, [1, HEADS, KEYS, VALUES], range));
    let (q, k, rates) = (q?, k?, between::<f32, 3>(5, [1, TOKENS, HEADS], range, [0.1, 0.5])?);
    let gates = between::<f32, GATES>(4, gates, range, [-0.2, 0.2])?;
    let (mut dq, mut dk, mut dv) = (device().zeros(q.shape())?, device().zeros(q.shape())?, device().zeros(v.shape())?);
    let (mut dgates, mut drates) = (device().zeros(gates.shape())?, device().zeros(rates.shape())?);
    let mut first = device().zeros(before.shape())?;
    let gradients = DeltaGradients {
        q: dq.view_mut(),
        k: dk.view_mut(),
        v: dv.view_mut(),
        gates: dgates.view_mut(),
        rates: drates.view_mut(),
        initial: Some(first.view_mut()),
    };
    let (q, k, v, rates) = (q.view(), k.view(), v.view(), rates.view());
    let inputs = DeltaInputs { q, k, v, gates: gates.view(), rates };
    let behind = (dy.view(), Some(after.view()));
    launch(&device().default_stream(), inputs, behind, Some(before.view()), gradients)?;
    let results = [bits(&dq)?, bits(&dk)?, bits(&dv)?, bits(&dgates)?, bits(&drates)?, bits(&first)?];
    Ok(row_by_row(&results, range.len()))
}

#[test]
fn delta_rules() -> ct::Result<()> {
    batch_invariant(|| {
        same(|range| {
            of_rule(&range, [1, TOKENS, HEADS], |stream, inputs, behind, before, gradients| {
                GatedDeltaRule { scale: 0.1 }.gradients(stream, inputs, behind, None, before, gradients)
            })
        })?;
        same(|range| {
            of_rule(&range, [1, TOKENS, HEADS, KEYS], |stream, inputs, behind, before, gradients| {
                KimiDelta { scale: 0.1 }.gradients(stream, inputs, behind, None, before, gradients)
            })
        })
    })
}

/// The gradients of `a` and `d` are sums over all sequences. Those of `b` and `c` have one addition
/// for the heads of a group, up to eight of them.
#[test]
fn mamba2() -> ct::Result<()> {
    const GROUPS: usize = 2;
    let heads = 2 * GROUPS;
    let (a, d) = (random::<f32, 1>(9, [heads], 1.0)?.0, random::<f32, 1>(10, [heads], 1.0)?.0);
    let a = device().array(&a.to_vec()?.iter().map(|a| -0.1 - a.abs()).collect::<Vec<_>>(), [heads])?;
    always(|range| {
        let [x, dy] = [1, 6].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, heads, 24], &range));
        let [b, c] = [2, 3].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, GROUPS, 12], &range));
        let (dt, before) = (part::<bf16, 3>(4, [1, TOKENS, heads], &range), part(7, [1, heads, 12, 24], &range));
        let (mut dx, mut ddt) = (device().zeros(x.shape())?, device().zeros(dt.shape())?);
        let (mut db, mut dc) = (device().zeros(b.shape())?, device().zeros(b.shape())?);
        let (mut da, mut dd) = (device().zeros([heads])?, device().zeros([heads])?);
        let gradients = Mamba2Gradients {
            x: dx.view_mut(),
            dt: ddt.view_mut(),
            a: da.view_mut(),
            b: db.view_mut(),
            c: dc.view_mut(),
            d: dd.view_mut(),
        };
        let (x, dt, b, c) = (x.view(), dt.view(), b.view(), c.view());
        let inputs = Mamba2Inputs { x, dt, dt_bias: None, a: a.view(), b, c, d: Some(d.view()) };
        let (stream, mamba) = (device().default_stream(), Mamba2 { softplus: true });
        mamba.gradients(&stream, inputs, dy.view(), None, Some(before.view()), gradients)?;
        Ok(row_by_row(&[bits(&dx)?, bits(&ddt)?, bits(&db)?, bits(&dc)?], range.len()))
    })
}
