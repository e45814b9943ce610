//! Quantisation with scales of blocks, groups and rows: the batch is the rows. Random bits of
//! stochastic rounding are those of the number of the row.

use std::ops::Range;

use cutlet as ct;
use cutlet::element::{bf16, f8e4m3fn};
use cutlet::packed::{Narrow, PackedDeviceArray, f4e2m1fn, f8e8m0fnu, i4, u4};
use cutlet_kernels::numbers::{
    BlockScale, Code, Rounded, Scales, Seed, quantize_blocks, quantize_e5m6, quantize_groups, quantize_nvfp4,
    quantize_rows,
};

use super::{BATCH, always, bits, part, row_by_row};
use crate::support::device;

/// Columns: more than a tile, and a part of one.
const COLUMNS: usize = 608;
/// Columns of a group.
const GROUP: usize = 32;

/// Returns the bits of packed codes.
fn codes<F: Narrow>(array: &PackedDeviceArray<F, 2>) -> ct::Result<Vec<u64>> {
    Ok(array.to_vec()?.into_iter().map(|code| code.code().into()).collect())
}

/// Compares as many rows as a block has.
#[track_caller]
fn blocks<S: BlockScale>(blocks: Scales, columns: usize) -> ct::Result<()> {
    let [rows, _] = blocks.block();
    always(|range| {
        let x = part::<bf16, 3>(1, [1, rows, columns], &range);
        let x = x.view().reshape([range.len() * rows, columns])?;
        let mut codes = device().zeros::<f8e4m3fn, 2>(x.shape())?;
        let mut scales = device().zeros::<S, 2>(blocks.shape(x.shape()))?;
        let results = (codes.view_mut(), scales.view_mut());
        quantize_blocks(&device().default_stream(), x, results, blocks, Rounded::Nearest)?;
        Ok(row_by_row(&[bits(&codes)?, bits(&scales)?], range.len()))
    })
}

#[test]
fn scales_of_blocks() -> ct::Result<()> {
    blocks::<f32>(Scales::Block1x128, COLUMNS)?;
    blocks::<f8e8m0fnu>(Scales::Block1x32, COLUMNS)?;
    // The 128 rows of a block share its scale.
    blocks::<f32>(Scales::Block128x128, 130)
}

#[track_caller]
fn groups<F: Code>(has_zeros: bool) -> ct::Result<()> {
    always(|range| {
        let x = part::<bf16, 2>(1, [1, COLUMNS], &range);
        let mut packed = device().packed_zeros::<F, 2>(x.shape())?;
        let of_groups = || device().zeros::<f32, 2>([range.len(), COLUMNS / GROUP]);
        let (mut scales, mut zeros) = (of_groups()?, of_groups()?);
        let results = (scales.view_mut(), has_zeros.then(|| zeros.view_mut()));
        quantize_groups(&device().default_stream(), x.view(), &mut packed, results, Rounded::Nearest)?;
        Ok(row_by_row(&[codes(&packed)?, bits(&scales)?, bits(&zeros)?], range.len()))
    })
}

#[test]
fn scales_of_groups() -> ct::Result<()> {
    groups::<i4>(false)?;
    groups::<u4>(true)
}

/// The scale of the tensor is an input.
#[test]
fn nvfp4() -> ct::Result<()> {
    let of_tensor = device().full([1], 2.0f32 / (6.0 * 448.0))?;
    always(|range| {
        let x = part::<bf16, 2>(1, [1, COLUMNS], &range);
        let mut packed = device().packed_zeros::<f4e2m1fn, 2>(x.shape())?;
        let mut scales = device().zeros::<f8e4m3fn, 2>([range.len(), COLUMNS / 16])?;
        let (from, to) = ((x.view(), of_tensor.view()), (&mut packed, scales.view_mut()));
        quantize_nvfp4(&device().default_stream(), from, to, Rounded::Nearest)?;
        Ok(row_by_row(&[codes(&packed)?, bits(&scales)?], range.len()))
    })
}

#[test]
fn e5m6() -> ct::Result<()> {
    always(|range| {
        let x = part::<bf16, 2>(1, [1, COLUMNS], &range);
        let mut words = device().zeros::<u32, 3>([range.len(), COLUMNS / 8, 3])?;
        let mut scales = device().zeros::<f32, 1>([range.len()])?;
        quantize_e5m6(&device().default_stream(), x.view(), words.view_mut(), scales.view_mut())?;
        Ok(row_by_row(&[bits(&words)?, bits(&scales)?], range.len()))
    })
}

/// The first row of an array has the bits of the first row of a batch alone.
#[test]
fn stochastic_rounding_depends_on_the_row() -> ct::Result<()> {
    let launch = |range: Range<usize>| {
        let x = part::<bf16, 2>(1, [1, COLUMNS], &range);
        let mut codes = device().zeros::<f8e4m3fn, 2>(x.shape())?;
        let mut scales = device().zeros::<f32, 2>([range.len(), 1])?;
        let (results, seed) = ((codes.view_mut(), scales.view_mut()), Seed { seed: 5, offset: 0 });
        quantize_rows(&device().default_stream(), x.view(), results, Rounded::Stochastic(seed))?;
        bits(&codes)
    };
    let all = launch(0..BATCH)?;
    assert_eq!(launch(0..1)?, all[..COLUMNS]);
    assert_ne!(launch(17..18)?, all[17 * COLUMNS..][..COLUMNS]);
    Ok(())
}
