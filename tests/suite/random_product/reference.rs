//! Random products in whole numbers, tile by tile as the kernels go.

use cutlet_reference::Whole;

use super::form::{Epilogue, Form, Product, Walk, Way};
use super::kernel::ENOUGH;

/// A matrix of whole numbers; zero outside.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub size: [usize; 2],
    pub data: Vec<i64>,
}

impl Matrix {
    fn at(&self, i: usize, j: usize) -> i64 {
        if i < self.size[0] && j < self.size[1] { self.data[i * self.size[1] + j] } else { 0 }
    }

    fn whole(&self) -> Whole<'_> {
        Whole { size: self.size, data: &self.data }
    }

    /// As the kernel uses it.
    pub fn by(mut self, way: Way, is_signed: bool) -> Matrix {
        if way == Way::Negated && is_signed {
            self.data.iter_mut().for_each(|x| *x = -*x);
        }
        self
    }
}

fn bounded(x: i64, limit: i64) -> i64 {
    x.clamp(-limit, limit)
}

/// `acc += left × right` of one tile of k.
fn add(acc: &mut [i64], left: &Matrix, right: &Matrix, tile: [usize; 3], at: [usize; 3], sign: i64) {
    let first = [0, 1, 2].map(|axis| at[axis] * tile[axis]);
    cutlet_reference::add_tile(acc, left.whole(), right.whole(), tile, first, sign);
}

/// The sum for one tile of the result, also where it sticks out.
fn sum(product: &Product, left: &Matrix, right: &Matrix, [i, j]: [usize; 2]) -> Vec<i64> {
    let Form { tile, walk, .. } = product.form;
    let mut acc = vec![0; tile[0] * tile[1]];
    for k in 0..left.size[1].div_ceil(tile[2]) {
        add(&mut acc, left, right, tile, [i, j, k], 1);
        let leaves = match walk {
            Walk::Limited => k + 1 >= product.limit,
            Walk::Enough => acc.iter().any(|&x| x as f64 >= ENOUGH),
            _ => false,
        };
        if leaves {
            break;
        }
        if walk == Walk::Twofold {
            add(&mut acc, left, right, tile, [i, j + 1, k], -1);
        }
    }
    acc
}

fn finish(form: Form, mut acc: Vec<i64>, bias: &[i64], j: usize) -> Vec<i64> {
    let [tm, tn, _] = form.tile;
    let bias = |column: usize| bias.get(j * tn + column).copied().unwrap_or(0);
    let rows: Vec<i64> = (0..tm).map(|i| (0..tn).map(|j| acc[i * tn + j]).max().unwrap().min(4)).collect();
    let columns: Vec<i64> = (0..tn).map(|j| (0..tm).map(|i| acc[i * tn + j]).max().unwrap().min(4)).collect();
    for (place, x) in acc.iter_mut().enumerate() {
        let (row, column) = (place / tn, place % tn);
        *x = match form.epilogue {
            Epilogue::Nothing => *x,
            Epilogue::Bias => *x + bias(column),
            Epilogue::PositiveBias => (*x + bias(column)).max(0),
            Epilogue::RowMaximum => *x + bias(column) * rows[row],
            Epilogue::ColumnMaximum => *x + bias(column) * columns[column],
            Epilogue::Narrowed => bounded(*x, 8) + bias(column),
        };
        if form.narrow {
            *x = bounded(*x, 8);
        }
    }
    acc
}

/// The result of [`super::kernel::product`].
pub fn product(product: &Product, left: &Matrix, right: &Matrix, bias: &[i64]) -> Matrix {
    let (form, [m, n]) = (product.form, [left.size[0], right.size[1]]);
    let [tm, tn, _] = form.tile;
    let mut result = Matrix { size: [m, n], data: vec![0; m * n] };
    for i in 0..m.div_ceil(tm) {
        for j in 0..n.div_ceil(tn) {
            let tile = finish(form, sum(product, left, right, [i, j]), bias, j);
            for row in 0..tm.min(m - i * tm) {
                for column in 0..tn.min(n - j * tn) {
                    result.data[(i * tm + row) * n + j * tn + column] = tile[row * tn + column];
                }
            }
        }
    }
    result
}

/// The result of [`super::kernel::chained`].
pub fn chained(product: &Product, left: &Matrix, right: &Matrix) -> Matrix {
    let form = product.form;
    let ([m, d], n, tn) = (left.size, right.size[0], form.tile[1]);
    let mut result = Matrix { size: [m, d], data: vec![0; m * d] };
    for i in 0..m {
        let acc = &mut result.data[i * d..][..d];
        for tile in 0..n.div_ceil(tn) {
            let low = if form.walk == Walk::Branched && tile >= product.limit { -1 } else { -2 };
            let scores = (tile * tn..(tile + 1) * tn).map(|j| (0..d).map(|k| left.at(i, k) * right.at(j, k)).sum());
            let weights: Vec<i64> = scores.map(|score: i64| score.clamp(low, 2)).collect();
            if form.epilogue == Epilogue::RowMaximum {
                let largest = *weights.iter().max().unwrap();
                acc.iter_mut().for_each(|x| *x += largest);
            }
            for (j, weight) in weights.iter().enumerate() {
                acc.iter_mut().enumerate().for_each(|(k, x)| *x += weight * right.at(tile * tn + j, k));
            }
        }
        if form.narrow {
            acc.iter_mut().for_each(|x| *x = bounded(*x, 8));
        }
    }
    result
}
