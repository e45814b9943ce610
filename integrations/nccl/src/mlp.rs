//! A multilayer perceptron whose weights are cut between ranks: those of the first product by
//! columns, those of the second one by rows. Each rank makes its part of the hidden numbers and a
//! part of every sum of the result; the parts are added up over the ranks.

use std::ops::Range;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_kernels::matmul;

use crate::kernels::{GRAIN, random};
use crate::ranks::{AllReduce, Rank};

/// Extents of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of input and output.
    pub tokens: usize,
    /// Columns of input and output.
    pub width: usize,
    /// Columns between the two products.
    pub hidden: usize,
}

impl Shape {
    /// Floating-point operations of both products.
    #[must_use]
    pub fn flops(self) -> f64 {
        4.0 * self.tokens as f64 * self.width as f64 * self.hidden as f64
    }
}

/// State of a rank: the input, its columns and rows of the weights, and its hidden numbers.
#[derive(Debug)]
struct Part {
    input: ct::DeviceArray<f16, 2>,
    up: ct::DeviceArray<f16, 2>,
    down: ct::DeviceArray<f16, 2>,
    hidden: ct::DeviceArray<f16, 2>,
}

/// `gelu(x up) down` with f16 weights on several ranks.
#[derive(Debug)]
pub struct TensorParallel<A> {
    ranks: A,
    parts: Vec<Part>,
    outputs: Vec<ct::DeviceArray<f16, 2>>,
}

impl<A: AllReduce> TensorParallel<A> {
    /// A layer with random input and weights, which depend on the seed and not on the number of
    /// ranks.
    ///
    /// # Errors
    /// Errors of the allocation of arrays, such as [`ct::Error::Driver`].
    pub fn new(ranks: A, shape: Shape, seed: u64) -> ct::Result<TensorParallel<A>> {
        let Shape { tokens, width, hidden } = shape;
        let count = ranks.ranks().len();
        let (mut parts, mut outputs) = (Vec::new(), Vec::new());
        for (at, rank) in ranks.ranks().iter().enumerate() {
            let own = share(hidden, at, count);
            // With these scales, sums are about as large as the input.
            let scales = [1.0, (3.0 / width as f32).sqrt(), (3.0 / hidden as f32).sqrt()];
            parts.push(Part {
                input: matrix(rank, [0..tokens, 0..width], (seed, scales[0]))?,
                up: matrix(rank, [0..width, own.clone()], (seed + 1, scales[1]))?,
                down: matrix(rank, [own.clone(), 0..width], (seed + 2, scales[2]))?,
                hidden: rank.device.zeros([tokens, own.len()])?,
            });
            outputs.push(rank.device.zeros([tokens, width])?);
        }
        Ok(TensorParallel { ranks, parts, outputs })
    }

    /// Queues the layer on all ranks. Every rank has the whole output then.
    ///
    /// # Errors
    /// Errors of launches and sums.
    pub fn forward(&mut self) -> ct::Result<()> {
        for ((rank, part), output) in self.ranks.ranks().iter().zip(&mut self.parts).zip(&mut self.outputs) {
            multiply(rank, &part.input, &part.up, &mut part.hidden, true)?;
            multiply(rank, &part.hidden, &part.down, output, false)?;
        }
        self.sum()
    }

    /// Queues the sum of the outputs over all ranks alone, as [`TensorParallel::forward`] does at
    /// its end.
    ///
    /// # Errors
    /// Errors of sums.
    pub fn sum(&mut self) -> ct::Result<()> {
        self.ranks.sum(&mut self.outputs)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] where work of them failed.
    pub fn synchronize(&self) -> ct::Result<()> {
        self.ranks.ranks().iter().try_for_each(|rank| rank.stream.synchronize())
    }

    /// The output as a rank has it.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn output(&self, rank: usize) -> &ct::DeviceArray<f16, 2> {
        &self.outputs[rank]
    }

    /// Input and weights of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn operands(&self, rank: usize) -> [&ct::DeviceArray<f16, 2>; 3] {
        let Part { input, up, down, .. } = &self.parts[rank];
        [input, up, down]
    }

    /// The ranks.
    #[must_use]
    pub fn ranks(&self) -> &A {
        &self.ranks
    }
}

/// Part of an axis that a rank holds: whole grains, as far as there are any.
fn share(extent: usize, rank: usize, ranks: usize) -> Range<usize> {
    let grains = extent.div_ceil(GRAIN);
    let [start, end] = [rank, rank + 1].map(|at| (grains * at / ranks * GRAIN).min(extent));
    start..end
}

/// A part of a matrix of random numbers, which begins with a whole grain.
fn matrix(rank: &Rank, [rows, columns]: [Range<usize>; 2], numbers: (u64, f32)) -> ct::Result<ct::DeviceArray<f16, 2>> {
    let mut made = rank.device.zeros([rows.len(), columns.len()])?;
    if !made.is_empty() {
        let first = [rows.start, columns.start].map(|at| (at / GRAIN) as i32);
        let grid = made.shape().map(|extent| extent.div_ceil(GRAIN));
        ct::Launch::new(grid).stream(&rank.stream).launch(random, (&mut made, numbers, first))?;
    }
    Ok(made)
}

fn multiply(
    rank: &Rank,
    x: &ct::DeviceArray<f16, 2>,
    w: &ct::DeviceArray<f16, 2>,
    y: &mut ct::DeviceArray<f16, 2>,
    gelu: bool,
) -> ct::Result<()> {
    let (x, w, y) = (x.view(), w.view(), y.view_mut());
    match gelu {
        true => matmul().gelu().launch(&rank.stream, x, w, y),
        false => matmul().launch(&rank.stream, x, w, y),
    }
}
