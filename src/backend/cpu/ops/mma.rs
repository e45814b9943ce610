//! Matrix multiply-accumulate.
//!
//! Each element of the result starts as its accumulator. The products are added in the order of k,
//! each by one fused multiply-add in f32 (f64 for f64). Products of operands of at most 11
//! significant bits are exact in f32, so these are exact products with f32 sums. An f16 result is
//! rounded once, at the end. Integer products are added modulo 2^32. The blocking of the loops does
//! not change results.

use crate::util::collect::CollectVec as _;
use std::borrow::Cow;

use bytemuck::allocation::cast_vec;

use super::float::{narrow, widen};
use super::int;
use crate::backend::cpu::interp::value::{Word, Words, map};
use crate::dtype::DType;
use crate::ir::Sign;
use crate::types::float_codec;

/// Extents of a product: `batch` times M×K by K×N.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Extents {
    /// Creates the extents from the shapes of lhs (`[batch,] m, k`) and rhs (`[batch,] k, n`).
    pub fn new(lhs: &[usize], rhs: &[usize]) -> Extents {
        let rank = lhs.len();
        Extents { batch: lhs[..rank - 2].iter().product(), m: lhs[rank - 2], k: lhs[rank - 1], n: rhs[rank - 1] }
    }
}

/// Computes `acc + lhs · rhs` on float tiles.
pub(crate) fn mma_float(extents: Extents, [input, output]: [DType; 2], [lhs, rhs]: [&Words; 2], acc: Words) -> Words {
    if output == DType::F64 {
        let Words::W64(acc) = acc else { unreachable!("f64 words") };
        let mut acc: Vec<f64> = cast_vec(acc);
        let values = |w| bytemuck::cast_slice::<u64, f64>(u64::of(w));
        multiply(extents, values(lhs), values(rhs), &mut acc);
        return Words::W64(cast_vec(acc));
    }
    accumulate(extents, output, &to_f32(input, lhs), &to_f32(input, rhs), acc)
}

fn accumulate(extents: Extents, output: DType, lhs: &[f32], rhs: &[f32], acc: Words) -> Words {
    let mut sums = match (output, acc) {
        (DType::F32, Words::W32(acc)) => cast_vec(acc),
        (_, acc) => widen(output, &acc).into_owned(),
    };
    multiply(extents, lhs, rhs, &mut sums);
    narrow(output, sums)
}

/// Computes `acc + (lhs · lhs_scale) · (rhs · rhs_scale)`; a scale applies to a range of k.
pub(crate) fn mma_scaled(
    extents: Extents,
    [left_type, right_type, scale]: [DType; 3],
    [lhs, rhs, lhs_scale, rhs_scale]: [&Words; 4],
    acc: Words,
) -> Words {
    let Extents { batch, m, n, k } = extents;
    let (mut left, mut right) = (to_f32(left_type, lhs).into_owned(), to_f32(right_type, rhs).into_owned());
    let (left_scale, right_scale) = (to_f32(scale, lhs_scale), to_f32(scale, rhs_scale));
    let run = k * batch * m / left_scale.len();
    for (i, value) in left.iter_mut().enumerate() {
        *value *= left_scale[i / run];
    }
    for (i, value) in right.iter_mut().enumerate() {
        let (row, column) = (i / n, i % n);
        *value *= right_scale[row / run * n + column];
    }
    accumulate(extents, DType::F32, &left, &right, acc)
}

/// Computes `acc + lhs · rhs` on i8 tiles with an i32 accumulator.
pub(crate) fn mma_int(extents: Extents, signs: [Sign; 2], [lhs, rhs]: [&Words; 2], acc: Words) -> Words {
    let Words::W32(acc) = acc else { unreachable!("i32 words") };
    let mut acc: Vec<i32> = cast_vec(acc);
    let values = |sign, words| map(&int::read(DType::I8, sign, words), |v| v as i32);
    multiply(extents, &values(signs[0], lhs), &values(signs[1], rhs), &mut acc);
    Words::W32(cast_vec(acc))
}

/// Returns the values of an input type, which f32 represents exactly (8-bit types by table).
fn to_f32(dtype: DType, words: &Words) -> Cow<'_, [f32]> {
    match dtype {
        DType::F32 | DType::TF32 | DType::F16 | DType::BF16 => widen(dtype, words),
        _ => {
            let codes = 1u64 << dtype.bits();
            let table: Vec<f32> = (0..codes).map(|code| float_codec::decode(dtype, code) as f32).collect_vec();
            Cow::Owned(map(u8::of(words), |w| table[w as usize]))
        }
    }
}

/// Arithmetic of one step of a dot product.
trait MulAdd: Copy + Default {
    fn mul_add(self, rhs: Self, acc: Self) -> Self;

    /// Computes `ROWS` rows of the columns from `j` on.
    #[inline(always)]
    fn multiply_block(n: usize, k: usize, j: usize, lhs: &[Self], rhs: &[Self], acc: &mut [Self]) {
        multiply_block(n, k, j, lhs, rhs, acc);
    }
}
impl MulAdd for f32 {
    #[inline(always)]
    fn mul_add(self, rhs: f32, acc: f32) -> f32 {
        f32::mul_add(self, rhs, acc)
    }

    #[inline(always)]
    fn multiply_block(n: usize, k: usize, j: usize, lhs: &[f32], rhs: &[f32], acc: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the features that the function is compiled for.
            unsafe { multiply_block_avx2(n, k, j, lhs, rhs, acc) };
            return;
        }
        multiply_block(n, k, j, lhs, rhs, acc);
    }
}
impl MulAdd for f64 {
    #[inline(always)]
    fn mul_add(self, rhs: f64, acc: f64) -> f64 {
        f64::mul_add(self, rhs, acc)
    }
}
impl MulAdd for i32 {
    #[inline(always)]
    fn mul_add(self, rhs: i32, acc: i32) -> i32 {
        self.wrapping_mul(rhs).wrapping_add(acc)
    }
}

fn multiply<T: MulAdd>(extents: Extents, lhs: &[T], rhs: &[T], acc: &mut [T]) {
    let Extents { m, n, k, .. } = extents;
    for ((lhs, rhs), acc) in lhs.chunks(m * k).zip(rhs.chunks(k * n)).zip(acc.chunks_mut(m * n)) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the features that the function is compiled for.
            unsafe { multiply_avx2(extents, lhs, rhs, acc) };
            continue;
        }
        multiply_one(extents, lhs, rhs, acc);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_avx2<T: MulAdd>(extents: Extents, lhs: &[T], rhs: &[T], acc: &mut [T]) {
    multiply_one(extents, lhs, rhs, acc);
}

/// Rows and columns of the block of the result that is kept in registers.
const ROWS: usize = 4;
const COLUMNS: usize = 16;

#[inline(always)]
fn multiply_one<T: MulAdd>(Extents { m, n, k, .. }: Extents, lhs: &[T], rhs: &[T], acc: &mut [T]) {
    if m % ROWS == 0 && n % COLUMNS == 0 {
        for j in (0..n).step_by(COLUMNS) {
            for (lhs, acc) in lhs.chunks_exact(ROWS * k).zip(acc.chunks_exact_mut(ROWS * n)) {
                T::multiply_block(n, k, j, lhs, rhs, acc);
            }
        }
        return;
    }
    for (lhs, acc) in lhs.chunks_exact(k).zip(acc.chunks_exact_mut(n)) {
        for (&a, rhs) in lhs.iter().zip(rhs.chunks_exact(n)) {
            for (sum, &b) in acc.iter_mut().zip(rhs) {
                *sum = a.mul_add(b, *sum);
            }
        }
    }
}

/// Computes `ROWS` rows of the columns from `j` on.
#[inline(always)]
fn multiply_block<T: MulAdd>(n: usize, k: usize, j: usize, lhs: &[T], rhs: &[T], acc: &mut [T]) {
    let mut sums = [[T::default(); COLUMNS]; ROWS];
    for (i, row) in sums.iter_mut().enumerate() {
        row.copy_from_slice(&acc[i * n + j..][..COLUMNS]);
    }
    for p in 0..k {
        let right: &[T; COLUMNS] = rhs[p * n + j..][..COLUMNS].try_into().expect("a row of the block");
        for (i, row) in sums.iter_mut().enumerate() {
            let a = lhs[i * k + p];
            for (sum, &b) in row.iter_mut().zip(right) {
                *sum = a.mul_add(b, *sum);
            }
        }
    }
    for (i, row) in sums.iter().enumerate() {
        acc[i * n + j..][..COLUMNS].copy_from_slice(row);
    }
}

/// `multiply_block` of f32 by intrinsics. Builds without optimization do not vectorize
/// loops.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_block_avx2(n: usize, k: usize, j: usize, lhs: &[f32], rhs: &[f32], acc: &mut [f32]) {
    use std::arch::x86_64::{_mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_storeu_ps};
    const LANES: usize = 8;
    assert!(
        j + COLUMNS <= n && k * n <= rhs.len() && ROWS * k <= lhs.len() && ROWS * n <= acc.len(),
        "a block of the result"
    );
    // SAFETY: rows and columns of the block are inside of the slices by the assertion.
    unsafe {
        let sum = |i: usize, half: usize| _mm256_loadu_ps(acc.as_ptr().add(i * n + j + half * LANES));
        let [mut s00, mut s10, mut s20, mut s30] = [sum(0, 0), sum(1, 0), sum(2, 0), sum(3, 0)];
        let [mut s01, mut s11, mut s21, mut s31] = [sum(0, 1), sum(1, 1), sum(2, 1), sum(3, 1)];
        let (mut left, mut right) = (lhs.as_ptr(), rhs.as_ptr().add(j));
        let end = left.add(k);
        while left != end {
            let (b0, b1) = (_mm256_loadu_ps(right), _mm256_loadu_ps(right.add(LANES)));
            let a = _mm256_broadcast_ss(&*left);
            (s00, s01) = (_mm256_fmadd_ps(a, b0, s00), _mm256_fmadd_ps(a, b1, s01));
            let a = _mm256_broadcast_ss(&*left.add(k));
            (s10, s11) = (_mm256_fmadd_ps(a, b0, s10), _mm256_fmadd_ps(a, b1, s11));
            let a = _mm256_broadcast_ss(&*left.add(2 * k));
            (s20, s21) = (_mm256_fmadd_ps(a, b0, s20), _mm256_fmadd_ps(a, b1, s21));
            let a = _mm256_broadcast_ss(&*left.add(3 * k));
            (s30, s31) = (_mm256_fmadd_ps(a, b0, s30), _mm256_fmadd_ps(a, b1, s31));
            // Past the last row, the address is not that of an element.
            (left, right) = (left.add(1), right.wrapping_add(n));
        }
        for (i, [low, high]) in [[s00, s01], [s10, s11], [s20, s21], [s30, s31]].into_iter().enumerate() {
            let to = acc.as_mut_ptr().add(i * n + j);
            _mm256_storeu_ps(to, low);
            _mm256_storeu_ps(to.add(LANES), high);
        }
    }
}
