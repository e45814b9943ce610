//! Matrix multiply-accumulate.

use crate::dtype::DType;
use crate::element::{Element, MatmulInput, MmaInput, ScaledInput, tf32};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Flag, OpId, Opcode, Sign, Type, Value};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Names a rank for the compiler's messages.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn product<const R: usize>(a: Tile<f32, R>, b: Tile<f32, R>) -> Tile<f32, R>
/// where
///     ct::ops::Rank<R>: ct::ops::MatrixRank,
/// {
///     ct::matmul(a, b)
/// }
/// ct::assert!(product(ct::astile([[2.0, 1.0]]), ct::astile([[3.0], [4.0]])).eq(10.0));
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rank<const R: usize>;

/// Ranks of matrices: 2, or 3 with a leading batch axis.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn square<const R: usize>(a: Tile<f32, R>) -> Tile<f32, R>
/// where
///     ct::ops::Rank<R>: ct::ops::MatrixRank,
/// {
///     ct::matmul(a, a)
/// }
/// ct::assert!(square(ct::astile([[[2.0]], [[3.0]]])).eq(ct::astile([[[4.0]], [[9.0]]])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "matrices are tiles with 2 axes, or 3 with a batch axis in front: `{Self}` is not a matrix",
    note = "give a vector a second axis with `.unsqueeze(0)` or `.unsqueeze(1)`"
)]
pub trait MatrixRank: Sealed {}
impl<const R: usize> Sealed for Rank<R> {}
impl MatrixRank for Rank<2> {}
impl MatrixRank for Rank<3> {}

/// Element types and signedness of the operands left, right and accumulator.
struct Kinds {
    sign: [Sign; 2],
    elem: [&'static str; 3],
    acc: DType,
    /// True if the operands are 8-bit floats.
    small: bool,
}

impl Kinds {
    fn of<A: Element, B: Element, C: Element>() -> Kinds {
        let sign = |signed: bool| if signed { Sign::Signed } else { Sign::Unsigned };
        let small = matches!(A::DTYPE, DType::F8E4M3FN | DType::F8E5M2);
        Kinds { sign: [sign(A::SIGNED), sign(B::SIGNED)], elem: [A::NAME, B::NAME, C::NAME], acc: C::DTYPE, small }
    }
}

impl Trace {
    /// The shape of a product, reported and guessed when the operands do not fit.
    fn product_shape(
        &mut self,
        place: Place,
        name: &str,
        kinds: &Kinds,
        lhs: ValueHandle,
        rhs: ValueHandle,
    ) -> Option<Vec<i64>> {
        let (a, b) = (self.shape(lhs), self.shape(rhs));
        let r = a.len();
        let batches = a[..r - 2].iter().zip(&b[..r - 2]);
        if a[r - 1] == b[r - 2] && batches.clone().all(|(x, y)| x == y || *x == 1 || *y == 1) {
            return Some(batches.map(|(x, y)| *x.max(y)).chain([a[r - 2], b[r - 1]]).collect_vec());
        }
        let way_out = match r {
            2 => "a is [m, k], b is [k, n]: the last extent of a is the first one of b (`.transpose()` exchanges them)",
            _ => "a is [batch, m, k], b is [batch, k, n]; one matrix for all of a batch is [1, m, k] or [1, k, n]",
        };
        let [x, y, _] = kinds.elem;
        self.report(place, format!("`{name}` of {x} {a:?} and {y} {b:?}"), &[way_out]);
        None
    }

    fn mma(&mut self, place: Place, kinds: &Kinds, [lhs, rhs, acc]: [ValueHandle; 3], fast: bool) -> ValueHandle {
        self.at(place);
        let ty = Type::tile(kinds.acc, self.shape(acc));
        let usable = [lhs, rhs, acc].map(|raw| self.check_usable(raw, place));
        let [Some(a), Some(b), Some(c)] = usable else { return self.poison(ty) };
        let Some(product) = self.product_shape(place, "mma", kinds, lhs, rhs) else { return self.poison(ty) };
        let shape = self.shape(acc);
        if product != shape {
            let (a, b, [x, y, z]) = (self.shape(lhs), self.shape(rhs), kinds.elem);
            let message = format!("`mma` of {x} {a:?} and {y} {b:?} into an accumulator {z} {shape:?}");
            return self.fail(
                place,
                ty,
                message,
                &[&format!("the accumulator has the shape of the product: {product:?}")],
            );
        }
        if !self.admits(place, Effect::Pure, shape.len()) {
            return self.poison(ty);
        }
        let (code, attrs) = match kinds.acc.is_float() {
            true if fast && kinds.small => (Opcode::MmaF, vec![Attr::Flag(Flag::FastAcc)]),
            true => (Opcode::MmaF, vec![]),
            false => (Opcode::MmaI, vec![Attr::SignLhs(kinds.sign[0]), Attr::SignRhs(kinds.sign[1])]),
        };
        // One matrix for all of a batch.
        let [a, b] = [a, b].map(|value| {
            let own = self.builder.module.shape(value);
            let full = [&shape[..shape.len() - 2], &own[own.len() - 2..]].concat();
            self.stretch(value, &full)
        });
        let value = self.put(code, &[a, b, c], attrs, kinds.acc, &shape);
        self.raw(value)
    }

    /// Marks the MMAs that compute these values as parts of one MMA of the user.
    fn mark_one_mma(&mut self, place: Place, parts: &[ValueHandle]) {
        let values: Vec<Value> = parts.iter().filter_map(|&part| self.check_usable(part, place)).collect_vec();
        let module = &mut self.builder.module;
        let mmas = values.into_iter().filter_map(|value| module.defining_op(value));
        let mmas: Vec<OpId> = mmas.filter(|&op| module.op(op).code.is_mma()).collect_vec();
        if let [first, others @ ..] = &mmas[..] {
            others.iter().for_each(|&other| module.add_mma_part(other, *first));
        }
    }
}

/// Marks the MMAs that compute these tiles as parts of one MMA of the user: they may be issued
/// together.
#[track_caller]
pub(crate) fn mark_one_mma<C: Element, const R: usize>(parts: &[Tile<C, R>]) {
    let (place, parts) = (caller_location(), parts.iter().map(|part| part.raw()).collect::<Vec<ValueHandle>>());
    record(|t| t.mark_one_mma(place, &parts));
}

/// `acc + a · b` for matrices, or for each matrix of a batch.
///
/// Shapes: a `[m, k]`, b `[k, n]`, acc `[m, n]`, or all with one more axis in front, where
/// `[1, m, k]` or `[1, k, n]` is one matrix for all of the batch. Element types: see [`MmaInput`];
/// integer accumulation wraps. Nothing is converted implicitly: f32 operands multiply in full f32
/// precision, `.cast::<tf32>()` selects the tensor cores' format.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn block(a: Tile<f16, 2>, b: Tile<f16, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
///     ct::mma(a, b, acc)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// let (a, b) = (ct::full([16, 8], f16::ONE), ct::full([8, 16], f16::ONE));
/// ct::assert!(block(a, b, ct::ones([16, 16])).eq(9.0));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn mma<A, B, C, const R: usize>(a: Tile<A, R>, b: Tile<B, R>, acc: Tile<C, R>) -> Tile<C, R>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
    Rank<R>: MatrixRank,
{
    let (place, kinds) = (caller_location(), Kinds::of::<A, B, C>());
    Tile::from_raw(record(|t| t.mma(place, &kinds, [a.raw(), b.raw(), acc.raw()], false)))
}

/// [`mma`] that may sum products of 8-bit floats with fewer bits than f32 has, where that is
/// faster: on Hopper about 14 bits over the whole of k that one accumulator sees. Other element
/// types are summed as ever.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn block(a: Tile<f8e4m3fn, 2>, b: Tile<f8e4m3fn, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
///     ct::mma_fast_acc(a, b, acc)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// let (a, b) = (ct::ones::<f32, 2>([16, 32]).cast(), ct::ones::<f32, 2>([32, 16]).cast());
/// ct::assert!(block(a, b, ct::ones([16, 16])).eq(33.0));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn mma_fast_acc<A, B, C, const R: usize>(a: Tile<A, R>, b: Tile<B, R>, acc: Tile<C, R>) -> Tile<C, R>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
    Rank<R>: MatrixRank,
{
    let (place, kinds) = (caller_location(), Kinds::of::<A, B, C>());
    Tile::from_raw(record(|t| t.mma(place, &kinds, [a.raw(), b.raw(), acc.raw()], true)))
}

/// Precision of a matrix multiplication of f32 operands: [`mma_with`].
///
/// ```
/// use cutlet::Precision;
/// assert_ne!(Precision::TF32, Precision::TF32x3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// f32, as [`mma`]: one fused multiply-add a term, without tensor cores.
    F32,
    /// Operands rounded to tf32, on tensor cores: an error of 2⁻¹¹ of each operand.
    TF32,
    /// Operands as sums of two tf32, on tensor cores: three products instead of one. Each product
    /// of two elements has an error below 2⁻²⁰ of its magnitude.
    TF32x3,
}

/// [`mma`] of f32 operands with a [`Precision`].
///
/// With `TF32x3`, an operand `x` is the sum of `big = tf32(x)` and `small = tf32(x - big)`, and the
/// result is `acc + small · big + big · small + big · big`. The error of the sum of k terms is at
/// most (2⁻²⁰ + 6k · 2⁻²³) Σ, where Σ is the sum of the magnitudes of all terms. Elements have
/// magnitudes below 2¹²⁷. Parts below 2⁻¹²⁶ may be lost.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn block(a: Tile<f32, 2>, b: Tile<f32, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
///     ct::mma_with(a, b, acc, ct::Precision::TF32x3)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// // 1 + 2^-12 is no tf32.
/// let (a, b) = (ct::full([16, 8], 1.000_244_140_625f32), ct::ones::<f32, 2>([8, 16]));
/// ct::assert!(block(a, b, ct::zeros([16, 16])).eq(8.001_953_125));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn mma_with<const R: usize>(
    a: Tile<f32, R>,
    b: Tile<f32, R>,
    acc: Tile<f32, R>,
    precision: Precision,
) -> Tile<f32, R>
where
    Rank<R>: MatrixRank,
{
    match precision {
        Precision::F32 => mma(a, b, acc),
        Precision::TF32 => mma(a.cast::<tf32>(), b.cast::<tf32>(), acc),
        Precision::TF32x3 => {
            let ((a, a_rest), (b, b_rest)) = (split_tf32(a), split_tf32(b));
            let rest = mma(a_rest, b, acc);
            let more = mma(a, b_rest, rest);
            let sum = mma(a, b, more);
            mark_one_mma(&[rest, more, sum]);
            sum
        }
    }
}

/// Returns the nearest tf32 of each element, and that of the rest. The rest of an infinity is zero.
#[track_caller]
fn split_tf32<const R: usize>(x: Tile<f32, R>) -> (Tile<tf32, R>, Tile<tf32, R>) {
    let big = x.cast::<tf32>();
    let rest = x - big.cast::<f32>();
    (big, rest.eq(rest).select(rest, 0.0).cast::<tf32>())
}

/// `a · b`, in the natural accumulator type: f32 for floats of up to 32 bits, f64 for f64, i32 for
/// integers. (The result is not converted back to the type of the operands.)
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (a, b) = (ct::astile([[1.0f32, 2.0], [3.0, 4.0]]), ct::astile([[0.0, 1.0], [1.0, 0.0]]));
/// ct::assert!(ct::matmul(a, b).eq(ct::astile([[2.0, 1.0], [4.0, 3.0]])));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn matmul<A, B, const R: usize>(a: Tile<A, R>, b: Tile<B, R>) -> Tile<A::Acc, R>
where
    A: MatmulInput<B>,
    B: Element,
    Rank<R>: MatrixRank,
{
    let (place, kinds) = (caller_location(), Kinds::of::<A, B, A::Acc>());
    Tile::from_raw(record(|t| {
        t.at(place);
        let poison = Type::tile(kinds.acc, vec![1; R]);
        if [a.raw(), b.raw()].map(|raw| t.check_usable(raw, place)).contains(&None) {
            return t.poison(poison);
        }
        let Some(shape) = t.product_shape(place, "matmul", &kinds, a.raw(), b.raw()) else { return t.poison(poison) };
        if !t.legal_shape(place, "matmul", &shape) || !t.admits(place, Effect::Pure, R) {
            return t.poison(poison);
        }
        let zero = t.splat(kinds.acc, 0, &shape);
        let acc = t.raw(zero);
        t.mma(place, &kinds, [a.raw(), b.raw(), acc], false)
    }))
}

/// `a · x` of a matrix and a vector, in the natural accumulator type (see [`matmul`]): each row of
/// `a` times `x`, summed. Products and sums are those of the accumulator type, to which the
/// elements are converted first.
///
/// Shapes: a `[m, k]`, x `[k]`; the result is `[m]`.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(a: Array<f16, 2>, x: Array<f16, 1>, y: ArrayMut<f32, 1>) {
///     let (a, x) = (a.load((0, 0), [2, 4]), x.load(0, [4]));
///     y.store(0, ct::matvec(a, x));
/// }
///
/// let device = ct::Device::cpu();
/// let a: Vec<f16> = (0..8).map(|i| f16::from_f32(i as f32)).collect();
/// let (a, x) = (device.array(&a, [2, 4])?, device.full([4], f16::from_f32(0.5))?);
/// let mut y = device.zeros([2])?;
/// ct::launch(kernel, 1, (&a, &x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3.0, 11.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn matvec<A, B>(a: Tile<A, 2>, x: Tile<B, 1>) -> Tile<A::Acc, 1>
where
    A: MatmulInput<B>,
    B: Element,
{
    let (place, [m, k]) = (caller_location(), a.shape());
    if x.shape() != [k] {
        return refused(place, "matvec", format!("{} [{m}, {k}] and {} {:?}", A::NAME, B::NAME, x.shape()), m);
    }
    (a.cast::<A::Acc>() * x.cast::<A::Acc>().unsqueeze(0)).sum(1).squeeze(1)
}

/// `x · a` of a vector and a matrix, in the natural accumulator type: each column of `a` times `x`,
/// summed as in [`matvec`].
///
/// Shapes: x `[k]`, a `[k, n]`; the result is `[n]`.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (x, a) = (ct::astile([1.0f32, 10.0]), ct::astile([[1.0, 2.0], [3.0, 4.0]]));
/// ct::assert!(ct::vecmat(x, a).eq(ct::astile([31.0, 42.0])));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn vecmat<A, B>(x: Tile<A, 1>, a: Tile<B, 2>) -> Tile<A::Acc, 1>
where
    A: MatmulInput<B>,
    B: Element,
{
    let (place, [k, n]) = (caller_location(), a.shape());
    if x.shape() != [k] {
        return refused(place, "vecmat", format!("{} {:?} and {} [{k}, {n}]", A::NAME, x.shape(), B::NAME), n);
    }
    (x.cast::<A::Acc>().unsqueeze(1) * a.cast::<A::Acc>()).sum(0).squeeze(0)
}

fn refused<T: Element>(place: Place, name: &str, what: String, extent: usize) -> Tile<T, 1> {
    let way_out = "the vector is as long as the axis of the matrix that it meets: the last one in `matvec`, the first \
                   one in `vecmat`";
    let ty = Type::tile(T::DTYPE, [extent as i64]);
    Tile::from_raw(record(|t| t.fail(place, ty, format!("`{name}` of {what}"), &[way_out])))
}

/// `acc + (a · scales) · (b · scales)` for matrices whose elements share scales in blocks along k:
/// mxfp8, mxfp4, nvfp4.
///
/// Shapes: a `[m, k]` with scales `[m, k / block]`, b `[k, n]` with scales `[k / block, n]`, acc
/// `[m, n]`, or all with one more axis in front. Blocks have 32 elements, for `f4e2m1fn` also 16.
/// Scales of `f8e4m3fn` must not be negative, and have blocks of 16. a and b may have two types if
/// both are permitted with the scales: f8e4m3fn and f8e5m2, or one of them and f4e2m1fn, by blocks
/// of 32.
///
/// The ptx back end multiplies the operands with their scales first and makes them bf16. That is
/// exact except for results below 2^-126, which lose bits, and from 2^128 on, which overflow. The
/// sums are those of a product of bf16 into f32. The tileir back end does the same for operands of
/// two types. (Tile IR has the scale type on sm_100 and later only.)
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// type Scales = Array<f8e8m0fnu, 2>;
///
/// fn kernel((a, b): (Array<f8e4m3fn, 2>, Array<f8e4m3fn, 2>), (s, t): (Scales, Scales), c: ArrayMut<f32, 2>) {
///     let (a, b) = (a.load((0, 0), [16, 64]), b.load((0, 0), [64, 8]));
///     let (s, t) = (s.load((0, 0), [16, 2]), t.load((0, 0), [2, 8]));
///     c.store((0, 0), ct::mma_scaled(a, s, b, t, ct::zeros([16, 8])));
/// }
///
/// let device = ct::Device::cpu();
/// let one = f8e4m3fn::from_f32(1.0);
/// let (a, b) = (device.full([16, 64], one)?, device.full([64, 8], one)?);
/// let scale = |x| f8e8m0fnu::from_f32(x);
/// let (s, t) = (device.full([16, 2], scale(4.0))?, device.full([2, 8], scale(0.5))?);
/// let mut c = device.zeros([16, 8])?;
/// ct::launch(kernel, 1, ((&a, &b), (&s, &t), &mut c))?;
/// assert_eq!(c.to_vec()?, [128.0; 128]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn mma_scaled<A, B, S, const R: usize>(
    a: Tile<A, R>,
    a_scale: Tile<S, R>,
    b: Tile<B, R>,
    b_scale: Tile<S, R>,
    acc: Tile<f32, R>,
) -> Tile<f32, R>
where
    A: ScaledInput<S>,
    B: ScaledInput<S>,
    S: Element,
    Rank<R>: MatrixRank,
{
    let (place, kinds) = (caller_location(), Kinds::of::<A, B, f32>());
    let operands = [a.raw(), b.raw(), acc.raw(), a_scale.raw(), b_scale.raw()];
    let blocks: Vec<usize> = A::BLOCKS.iter().copied().filter(|block| B::BLOCKS.contains(block)).collect_vec();
    Tile::from_raw(record(|t| t.mma_scaled(place, &kinds, operands, S::NAME, &blocks)))
}

impl Trace {
    fn mma_scaled(
        &mut self,
        place: Place,
        kinds: &Kinds,
        operands: [ValueHandle; 5],
        scale: &str,
        blocks: &[usize],
    ) -> ValueHandle {
        self.at(place);
        let [a, b, acc, a_scale, b_scale] = operands.map(|raw| self.shape(raw));
        let ty = Type::tile(kinds.acc, acc.as_slice());
        let values: Option<Vec<Value>> = operands.iter().map(|&raw| self.check_usable(raw, place)).collect();
        let Some(values) = values else { return self.poison(ty) };
        let Some(product) = self.product_shape(place, "mma_scaled", kinds, operands[0], operands[1]) else {
            return self.poison(ty);
        };
        let r = a.len();
        let [elem, other, _] = kinds.elem;
        if product != acc || a[..r - 2] != b[..r - 2] {
            let message = format!("`mma_scaled` of {elem} {a:?} and {other} {b:?} into an accumulator f32 {acc:?}");
            return self.fail(place, ty, message, &["the accumulator has the shape of the product, and one batch"]);
        }
        let k = a[r - 1];
        let fits = |block: &&usize| {
            let count = k / **block as i64;
            let of_a = [&a[..r - 1], &[count]].concat();
            let of_b = [&b[..r - 2], &[count, b[r - 1]]].concat();
            k % **block as i64 == 0 && a_scale == of_a && b_scale == of_b
        };
        if !blocks.iter().any(|block| fits(&block)) {
            let message = format!(
                "`mma_scaled` of {elem} {a:?} and {other} {b:?} with scales {scale} {a_scale:?} and {b_scale:?}"
            );
            let sizes: Vec<String> = blocks.iter().map(usize::to_string).collect_vec();
            let way_out = format!(
                "a scale belongs to {} elements along k: the scales of a are [m, k / block], those of b [k / block, n]",
                sizes.join(" or ")
            );
            return self.fail(place, ty, message, &[&way_out]);
        }
        if !self.admits(place, Effect::Pure, r) {
            return self.poison(ty);
        }
        let value = self.put(Opcode::MmaFScaled, &values, vec![], kinds.acc, &acc);
        self.raw(value)
    }
}
