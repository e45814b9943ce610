//! Rows of decode steps: paged caches, and sinks.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{Device, DeviceArray, Stream};
use cutlet_kernels::attention::{Decode, Pages, Scratch};

use super::scores::{attended, dot};
use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Tokens of a page.
const PAGE: usize = 64;
const HEADS: [usize; 2] = [32, 8];
const DIM: usize = 128;

/// Tokens of a sequence.
fn length<const LONGEST: usize>(sequence: usize) -> usize {
    LONGEST - sequence * 97 % (LONGEST / 2)
}

/// Page of a block of tokens.
fn page<const BATCH: usize, const LONGEST: usize>(sequence: usize, block: usize) -> usize {
    let pages = LONGEST / PAGE;
    (sequence * pages + block) * 7_919 % (BATCH * pages)
}

type Named<T> = (&'static str, DeviceArray<T, 1>);

/// Keys and values are the second and the third input.
fn pages<'a, const BATCH: usize, const LONGEST: usize>(
    inputs: &'a [Named<bf16>],
    integers: &'a [Named<i32>],
) -> ct::Result<Pages<'a, bf16>> {
    let pages = LONGEST / PAGE;
    let cache = |at: usize| matrix(&inputs[at].1, [BATCH * pages, PAGE, HEADS[1], DIM]);
    let table = matrix(&integers[0].1, [BATCH, pages])?;
    Ok(Pages { keys: cache(1)?, values: cache(2)?, table, lengths: integers[1].1.view() })
}

fn of_pages<const BATCH: usize, const LONGEST: usize>() -> Case {
    let (len, of_cache) = (BATCH * HEADS[0] * DIM, BATCH * LONGEST * HEADS[1] * DIM);
    let data = move |device: Device| {
        let of_table = |[at]: [usize; 1]| page::<BATCH, LONGEST>(0, at) as i32;
        let mut data = Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, len, 2.0)?),
                ("k", random::<bf16>(device, 2, of_cache, 2.0)?),
                ("v", random::<bf16>(device, 3, of_cache, 2.0)?),
            ],
            outputs: vec![("y", device.zeros([len])?), ("parts", device.zeros([len * 8])?)],
            numbers: vec![("logs", device.zeros([BATCH * HEADS[0] * 8])?)],
            integers: vec![
                ("table", device.from_fn([BATCH * LONGEST / PAGE], of_table)?),
                ("lengths", device.from_fn([BATCH], |[at]| length::<LONGEST>(at) as i32)?),
            ],
            kept: None,
        };
        let of = pages::<BATCH, LONGEST>(&data.inputs, &data.integers)?;
        let scratch = Decode::new(1.0).scratch(device, [BATCH, HEADS[0], DIM], &of)?;
        data.kept = Some(Box::new(scratch));
        Ok(data)
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, integers, kept, .. } = data;
        let Some(scratch) = kept.as_mut().and_then(|kept| kept.downcast_mut::<Scratch>()) else { return Ok(()) };
        let q = matrix(&inputs[0].1, [BATCH, HEADS[0], DIM])?;
        let y = matrix_mut(&mut outputs[0].1, [BATCH, HEADS[0], DIM])?;
        let of = pages::<BATCH, LONGEST>(inputs, integers)?;
        Decode::new(1.0 / (DIM as f32).sqrt()).launch(stream, q, of, y, scratch)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for row in places(BATCH * HEADS[0]) {
            let (sequence, head) = (row / HEADS[0], row % HEADS[0] / (HEADS[0] / HEADS[1]));
            let length = length::<LONGEST>(sequence);
            let cache = |name: &str| {
                let mut rows = Vec::new();
                for block in 0..length.div_ceil(PAGE) {
                    let from = page::<BATCH, LONGEST>(sequence, block) * PAGE * HEADS[1] * DIM;
                    let all = data.read(name, from, PAGE * HEADS[1] * DIM)?;
                    rows.extend(all.chunks_exact(DIM).skip(head).step_by(HEADS[1]).flatten().copied());
                }
                rows.truncate(length * DIM);
                Ok::<_, ct::Error>(rows)
            };
            let (q, k, v) = (data.read("q", row * DIM, DIM)?, cache("k")?, cache("v")?);
            let scores: Vec<f64> = (0..length).map(|j| dot(&q, &k, j) / (DIM as f64).sqrt()).collect();
            let result = values(&data.outputs[0].1, row * DIM, DIM)?;
            worst = worst.max(difference(&result, &attended(&scores, None, &v, DIM)));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let tokens: usize = (0..BATCH).map(length::<LONGEST>).sum();
    let name = format!("paged decode bf16 {BATCH} {}+{} {LONGEST} {DIM} {PAGE}", HEADS[0], HEADS[1]);
    Case::new(name, 1e-2, (4 * tokens * HEADS[1] * DIM) as f64, 0.0, functions)
}

/// A step with sinks. The original has keys and values by heads, ours by tokens.
fn of_sinks<const BATCH: usize, const LENGTH: usize, const WINDOW: usize>() -> Case {
    const HEADS: [usize; 2] = [64, 8];
    const DIM: usize = 64;
    fn pages<'a, const BATCH: usize, const LENGTH: usize>(
        inputs: &'a [Named<bf16>],
        integers: &'a [Named<i32>],
    ) -> ct::Result<Pages<'a, bf16>> {
        let cache = |at: usize| matrix(&inputs[at].1, [BATCH, LENGTH, HEADS[1], DIM]);
        let table = matrix(&integers[0].1, [BATCH, 1])?;
        Ok(Pages { keys: cache(1)?, values: cache(3)?, table, lengths: integers[1].1.view() })
    }
    fn decode<const WINDOW: usize>() -> Decode<'static> {
        let decode = Decode::new(1.0 / (DIM as f32).sqrt());
        if WINDOW > 0 { decode.window(WINDOW) } else { decode }
    }
    let (len, of_cache) = (BATCH * HEADS[0] * DIM, BATCH * LENGTH * HEADS[1] * DIM);
    let data = move |device: Device| {
        let mut inputs = vec![("q", random::<bf16>(device, 1, len, 2.0)?)];
        for (seed, of_tokens, of_heads) in [(2, "keys", "k"), (3, "values", "v")] {
            let (from, mut to) = (random::<bf16>(device, seed, of_cache, 2.0)?, device.zeros([of_cache])?);
            let by_head = matrix(&from, [BATCH, LENGTH, HEADS[1], DIM])?.permute([0, 2, 1, 3])?;
            matrix_mut(&mut to, [BATCH, HEADS[1], LENGTH, DIM])?.copy_from_array(&by_head)?;
            inputs.extend([(of_tokens, from), (of_heads, to)]);
        }
        let mut data = Data {
            inputs,
            outputs: vec![("y", device.zeros([len])?), ("parts", device.zeros([len * 4])?)],
            numbers: vec![
                ("sinks", random::<f32>(device, 4, HEADS[0], 4.0)?),
                ("logs", device.zeros([BATCH * HEADS[0] * 4])?),
            ],
            integers: vec![
                ("table", device.from_fn([BATCH], |[at]| at as i32)?),
                ("lengths", device.full([BATCH], LENGTH as i32)?),
                ("place", device.full([1], LENGTH as i32 - 1)?),
            ],
            kept: None,
        };
        let of = pages::<BATCH, LENGTH>(&data.inputs, &data.integers)?;
        let scratch = decode::<WINDOW>().scratch(device, [BATCH, HEADS[0], DIM], &of)?;
        data.kept = Some(Box::new(scratch));
        Ok(data)
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, integers, kept } = data;
        let Some(scratch) = kept.as_mut().and_then(|kept| kept.downcast_mut::<Scratch>()) else { return Ok(()) };
        let q = matrix(&inputs[0].1, [BATCH, HEADS[0], DIM])?;
        let y = matrix_mut(&mut outputs[0].1, [BATCH, HEADS[0], DIM])?;
        let of = pages::<BATCH, LENGTH>(inputs, integers)?;
        decode::<WINDOW>().sinks(numbers[0].1.view()).launch(stream, q, of, y, scratch)
    };
    let error = |data: &Data<bf16>| {
        let (mut worst, first) = (0.0f64, if WINDOW > 0 { LENGTH - WINDOW } else { 0 });
        for row in places(BATCH * HEADS[0]) {
            let head = row / HEADS[0] * HEADS[1] + row % HEADS[0] / (HEADS[0] / HEADS[1]);
            let q = data.read("q", row * DIM, DIM)?;
            let [k, v] = ["k", "v"].map(|name| data.read(name, (head * LENGTH + first) * DIM, (LENGTH - first) * DIM));
            let (k, v) = (k?, v?);
            let scores: Vec<f64> = (0..LENGTH - first).map(|j| dot(&q, &k, j) / (DIM as f64).sqrt()).collect();
            let sink = values(&data.numbers[0].1, row % HEADS[0], 1)?[0];
            let result = values(&data.outputs[0].1, row * DIM, DIM)?;
            worst = worst.max(difference(&result, &attended(&scores, Some(sink), &v, DIM)));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let seen = if WINDOW > 0 { WINDOW } else { LENGTH };
    let window = if WINDOW > 0 { format!(" window {WINDOW}") } else { String::new() };
    let name = format!("sink decode bf16 {BATCH} {}+{} {LENGTH} {DIM}{window}", HEADS[0], HEADS[1]);
    // The original rounds logarithms of the parts to bf16.
    Case::new(name, 4e-2, (4 * BATCH * seen * HEADS[1] * DIM) as f64, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_pages::<2, 256>(), of_sinks::<2, 128, 0>(), of_sinks::<1, 128, 20>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_pages::<32, 8192>(), of_sinks::<8, 8192, 0>(), of_sinks::<64, 8192, 128>()]
}
