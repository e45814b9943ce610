//! Atomic operations on elements by index tiles or pointers, with the values before as results.
//!
//! Each element is changed in one step, the tile as a whole is not. The order of the elements is
//! open. Several indices of one tile may name the same element: each is applied. Elements outside
//! of the array, and elements whose mask is false, are not accessed. Their result is 0, and that of
//! a compare-and-swap is the expected value.

use crate::dtype::DType;
use crate::element::{ByteSized, Int, Number, bf16, f16};
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, CmpOrder, CmpPred, Elem, MemOrder, Opcode, Overflow, Sign, Type, Value};
use crate::ops::memory::access_options::{AccessOptions, example, option, options};
use crate::ops::memory::element_index::{Component, Places, Request, Target};
use crate::ops::memory::memory_order::{Order, Scope};
use crate::ops::memory::tile_access::TileAccess;
use crate::ops::support::operand::Operand;
use crate::tile::{Place, Source, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Element types with atomic addition: i32, i64, u32, u64, f16, bf16, f32, f64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// /// The sum of all rows.
/// fn sum<T: ct::ops::AtomicAdd>(x: Array<T, 2>, sums: ArrayMut<T, 1>) {
///     let row = x.load((ct::bid(0), ct::bid(1)), [1, 4]);
///     sums.atomic_store_add(ct::bid(1), row.squeeze(0));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.from_fn([3, 6], |[i, j]| (10 * i + j) as f32)?;
/// let mut sums = device.zeros([6])?;
/// ct::launch(sum::<f32>, [3, 2], (&x, &mut sums))?;
/// assert_eq!(sums.to_vec()?, [30.0, 33.0, 36.0, 39.0, 42.0, 45.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no atomic addition of `{Self}`",
    note = "atomic_add and atomic_sub: i32, i64, u32, u64, f16, bf16, f32, f64"
)]
pub trait AtomicAdd: Number {}

/// Element types with atomic maximum and minimum: i32, i64, u32, u64, f16, bf16, f32, f64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn largest<T: ct::ops::AtomicMinMax>(x: Array<T, 1>, y: ArrayMut<T, 1>) {
///     y.atomic_store_max(0, x.load(ct::bid(0), [4]).reduce_max(0));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().from_fn([12], |[i]| i as f32)?, ct::Device::cpu().zeros([1])?);
/// ct::launch(largest::<f32>, 3, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [11.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no atomic maximum or minimum of `{Self}`",
    note = "atomic_max and atomic_min: i32, i64, u32, u64, f16, bf16, f32, f64"
)]
pub trait AtomicMinMax: Number {}

/// Element types with atomic bit operations: i32, i64, u32, u64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn seen<T: ct::ops::AtomicBits>(x: Array<T, 1>, y: ArrayMut<T, 1>) {
///     y.atomic_store_or(0, x.load(ct::bid(0), [1]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1u32, 4, 8], [3])?, ct::Device::cpu().zeros([1])?);
/// ct::launch(seen::<u32>, 3, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [13]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "there are no atomic bit operations on `{Self}`",
    note = "atomic_and, atomic_or, atomic_xor: i32, i64, u32, u64"
)]
pub trait AtomicBits: Int {}

/// Element types that can be exchanged atomically: those of 32 and 64 bits.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// /// The first of all tile blocks wins.
/// fn win<T: ct::ops::AtomicXchg>(winner: ArrayMut<T, 1>, free: Scalar<T>, won: ArrayMut<T, 1>, mine: Array<T, 1>) {
///     let i = ct::bid(0);
///     let before = winner.entry(0).atomic_cas(free, mine.entry(i).load());
///     won.entry(i).store(before);
/// }
///
/// let device = ct::Device::cpu();
/// let (mut winner, mut won) = (device.full([1], -1)?, device.zeros([16])?);
/// let mine = device.from_fn([16], |[i]| i as i32)?;
/// ct::launch(win::<i32>, 16, (&mut winner, -1, &mut won, &mine))?;
/// let before = won.to_vec()?;
/// assert_eq!(before.iter().filter(|&&before| before == -1).count(), 1);
/// assert_eq!(before[winner.to_vec()?[0] as usize], -1);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be exchanged atomically",
    note = "atomic_xchg and atomic_cas: i32, i64, u32, u64, f32, f64"
)]
pub trait AtomicXchg: Number {}

macro_rules! impl_for {
    ($($trait:ident: $($name:ident)+;)+) => { $($(impl $trait for $name {})+)+ };
}
impl_for! {
    AtomicAdd: i32 i64 u32 u64 f16 bf16 f32 f64;
    AtomicMinMax: i32 i64 u32 u64 f16 bf16 f32 f64;
    AtomicBits: i32 i64 u32 u64;
    AtomicXchg: i32 i64 u32 u64 f32 f64;
}

/// The options of an atomic operation with a result of rank `N`: its order, scope, mask and bounds
/// check. N is inferred from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // Only counts: in no order with anything else.
/// fn count(x: Array<i32, 1>, bins: ArrayMut<i32, 1>) {
///     let x = x.load(ct::bid(0), [8]);
///     let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device).mask(x.ne(3));
///     bins.atomic_add_with(x, 1, options);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut bins) = (device.array(&[0, 1, 1, 3, 3, 3, 9, 2], [8])?, device.zeros([4])?);
/// ct::launch(count, 1, (&x, &mut bins))?;
/// assert_eq!(bins.to_vec()?, [1, 2, 1, 0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// A ticket that releases and acquires:
///
/// ```
/// # use cutlet::doctest::*;
/// // The last block to arrive sees the stores of all others.
/// fn last(parts: ArrayMut<i32, 1>, tickets: ArrayMut<i32, 1>, sum: ArrayMut<i32, 1>) {
///     let release = ct::AtomicOptions::new().release(ct::Scope::Device);
///     parts.store_scalar(ct::bid(0), ct::bid(0));
///     let ticket = tickets.entry(0).atomic_add_with(1, release);
///     ct::if_then(ticket.eq(ct::num_blocks(0) - 1), || {
///         let acquire = ct::AtomicOptions::new().acquire(ct::Scope::Device);
///         let _all = tickets.entry(0).atomic_add_with(0, acquire);
///         sum.store(0, parts.load(0, [8]).sum(0));
///     });
/// }
///
/// let device = ct::Device::cpu();
/// let (mut parts, mut tickets, mut sum) = (device.zeros([8])?, device.zeros([1])?, device.zeros([1])?);
/// ct::launch(last, 8, (&mut parts, &mut tickets, &mut sum))?;
/// assert_eq!(sum.to_vec()?, [28]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AtomicOptions<const N: usize> {
    mask: Option<Source>,
    access: AccessOptions,
}

impl<const N: usize> Default for AtomicOptions<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> AtomicOptions<N> {
    /// Acquires and releases for the device; no mask, checked.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn count(y: ArrayMut<i32, 1>) {
    ///     let _before = y.atomic_add_with(0, 1, ct::AtomicOptions::new());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(count, 8, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        let memory = Order::new(MemOrder::AcqRel, Scope::Device);
        AtomicOptions { mask: None, access: AccessOptions { memory, ..AccessOptions::default() } }
    }
}

options! { [const N: usize] AtomicOptions<N>, {access, access},
    ["options" "ct::AtomicOptions::new()" "y.atomic_add_with(ct::arange(0..4), x.load(0, [4]), options);"]:
    mask relaxed acquire release acq_rel check_bounds
}

/// The operation on each element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtomicOp {
    Add,
    Sub,
    Max,
    Min,
    And,
    Or,
    Xor,
    Xchg,
    /// Compare-and-swap with the expected value.
    Cas(Source),
}

/// An atomic operation, without its types.
pub(crate) struct Atomic<'a> {
    place: Place,
    name: &'static str,
    target: Target<'a>,
    dtype: DType,
    signed: bool,
    rank: usize,
    op: AtomicOp,
    mask: Option<Source>,
    access: AccessOptions,
}

impl<'a> Atomic<'a> {
    /// Makes the relaxed operation on a tile of an array at these positions along its axes.
    pub fn of_view(tile_access: &TileAccess<'_>, index: &'a [Component], op: AtomicOp, signed: bool) -> Atomic<'a> {
        let TileAccess { place, name, array, dtype, .. } = *tile_access;
        let (memory, unchecked) = (Order::new(MemOrder::Relaxed, Scope::Device), tile_access.access.unchecked);
        let access = AccessOptions { memory, unchecked, ..AccessOptions::default() };
        let (target, rank) = (Target::Elements { array, index }, tile_access.shape.len());
        Atomic { place, name, target, dtype, signed, rank, op, mask: None, access }
    }
}

/// The values of an atomic operation, of one shape.
struct Values {
    pointers: Value,
    mask: Option<Value>,
    shape: Vec<i64>,
}

impl Trace {
    pub(crate) fn atomic(&mut self, atomic: &Atomic<'_>, value: Source) -> ValueHandle {
        self.at(atomic.place);
        let poison = Type::tile(atomic.dtype, vec![1; atomic.rank]);
        match self.atomic_value(atomic, value) {
            Some(old) => self.raw(old),
            None => self.poison(poison),
        }
    }

    fn atomic_value(&mut self, atomic: &Atomic<'_>, value: Source) -> Option<Value> {
        if !self.admits(atomic.place, Effect::ReadWrite, atomic.rank) {
            return None;
        }
        let expected = match atomic.op {
            AtomicOp::Cas(expected) => Some(expected),
            _ => None,
        };
        let Places { pointers, mask, shape } = self.places(&Request {
            place: atomic.place,
            name: atomic.name,
            target: atomic.target,
            dtype: atomic.dtype,
            rank: atomic.rank,
            others: &[("mask", atomic.mask), ("value", Some(value)), ("expected", expected)],
            mask: atomic.mask,
            unchecked: atomic.access.unchecked,
        })?;
        let value = self.stretched_operand(atomic.place, value, atomic.dtype, &shape)?;
        let values = Values { pointers, mask, shape };
        let float = atomic.dtype.is_float();
        Some(match atomic.op {
            AtomicOp::Cas(expected) => {
                let expected = self.stretched_operand(atomic.place, expected, atomic.dtype, &values.shape)?;
                self.compare_and_swap(atomic, &values, expected, value)
            }
            AtomicOp::Max | AtomicOp::Min if float => self.float_extremum(atomic, &values, value),
            AtomicOp::Sub => {
                let (code, attrs) = match float {
                    true => (Opcode::NegF, vec![]),
                    false => (Opcode::NegI, vec![Attr::Overflow(Overflow::None)]),
                };
                let negative = self.put(code, &[value], attrs, atomic.dtype, &values.shape);
                let mode = AtomicOp::Add.mode(atomic.dtype, atomic.signed);
                self.update(atomic, mode, atomic.dtype, &values, negative)
            }
            op => self.update(atomic, op.mode(atomic.dtype, atomic.signed), atomic.dtype, &values, value),
        })
    }

    /// Emits a read-modify-write. Returns the values before, and 0 where the mask is false.
    fn update(&mut self, atomic: &Atomic<'_>, mode: AtomicMode, dtype: DType, values: &Values, value: Value) -> Value {
        let Values { pointers, mask, shape } = values;
        let mut attrs = atomic.access.attrs();
        attrs.push(Attr::AtomicMode(mode));
        let types = [Type::tile(dtype, shape.as_slice()), Type::Token].map(|ty| self.builder.module.intern(ty));
        let mask_group: Vec<Value> = mask.iter().copied().collect_vec();
        let old = self.emit(Opcode::AtomicRmw, &[&[*pointers], &[value], &mask_group, &[]], attrs, vec![], &types)[0];
        match mask {
            Some(mask) => {
                // Tile IR leaves the result open where the mask is false.
                let zero = self.splat(dtype, 0, shape);
                self.put(Opcode::Select, &[*mask, old, zero], vec![], dtype, shape)
            }
            None => old,
        }
    }

    fn compare_and_swap(&mut self, atomic: &Atomic<'_>, values: &Values, expected: Value, value: Value) -> Value {
        let Values { pointers, mask, shape } = values;
        let types = [Type::tile(atomic.dtype, shape.as_slice()), Type::Token].map(|ty| self.builder.module.intern(ty));
        let mask: Vec<Value> = mask.iter().copied().collect_vec();
        let groups: [&[Value]; 5] = [&[*pointers], &[expected], &[value], &mask, &[]];
        self.emit(Opcode::AtomicCas, &groups, atomic.access.attrs(), vec![], &types)[0]
    }

    /// Emits a maximum or minimum of floats as integers.
    ///
    /// Bit patterns without a sign bit are ordered as integers. Those with a sign bit are ordered
    /// in the other direction. A value without sign therefore uses the signed order. A value with
    /// sign uses the unsigned order in the other direction. Both hold for all patterns in memory.
    ///
    /// A NaN is replaced by the pattern that changes no pattern. For the maximum it has all bits
    /// set, the largest unsigned integer. For the minimum it has all bits but the sign, the largest
    /// signed integer. An infinity replaces a NaN beyond it.
    fn float_extremum(&mut self, atomic: &Atomic<'_>, values: &Values, value: Value) -> Value {
        let shape = &values.shape;
        let maximum = matches!(atomic.op, AtomicOp::Max);
        let dtype = match atomic.dtype.bits() {
            64 => DType::I64,
            32 => DType::I32,
            _ => DType::I16,
        };
        let all = u64::MAX >> (64 - dtype.bits());
        let neutral = self.splat(dtype, if maximum { all } else { all >> 1 }, shape);
        let ordered = vec![Attr::CmpPred(CmpPred::Eq), Attr::CmpOrder(CmpOrder::Ordered)];
        let number = self.put(Opcode::CmpF, &[value, value], ordered, DType::I1, shape);
        let bits = self.put(Opcode::Bitcast, &[value], vec![], dtype, shape);
        let bits = self.put(Opcode::Select, &[number, bits, neutral], vec![], dtype, shape);
        let zero = self.splat(dtype, 0, shape);
        let elem = Elem::Ptr { pointee: dtype, attr: None };
        let ty = self.builder.module.intern(Type::Tile { elem, shape: shape.clone() });
        let pointers = self.emit(Opcode::PtrToPtr, &[&[values.pointers]], vec![], vec![], &[ty])[0];
        let modes = if maximum { [AtomicMode::Max, AtomicMode::UMin] } else { [AtomicMode::Min, AtomicMode::UMax] };
        let mut olds = Vec::with_capacity(2);
        for (mode, pred) in modes.into_iter().zip([CmpPred::Ge, CmpPred::Lt]) {
            let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
            let mut mask = self.put(Opcode::CmpI, &[bits, zero], attrs, DType::I1, shape);
            if let Some(other) = values.mask {
                mask = self.put(Opcode::AndI, &[mask, other], vec![], DType::I1, shape);
            }
            let part = Values { pointers, mask: Some(mask), shape: shape.clone() };
            olds.push(self.update(atomic, mode, dtype, &part, bits));
        }
        // The mask of one of them is false, and its result is 0.
        let old = self.put(Opcode::OrI, &olds, vec![], dtype, shape);
        self.put(Opcode::Bitcast, &[old], vec![], atomic.dtype, shape)
    }
}

impl AtomicOp {
    /// Returns the mode of Tile IR for elements of this type.
    pub fn mode(self, dtype: DType, signed: bool) -> AtomicMode {
        match (self, signed) {
            (AtomicOp::Add | AtomicOp::Sub, _) if dtype.is_float() => AtomicMode::AddF,
            (AtomicOp::Add | AtomicOp::Sub, _) => AtomicMode::Add,
            (AtomicOp::Max, true) => AtomicMode::Max,
            (AtomicOp::Max, false) => AtomicMode::UMax,
            (AtomicOp::Min, true) => AtomicMode::Min,
            (AtomicOp::Min, false) => AtomicMode::UMin,
            (AtomicOp::And, _) => AtomicMode::And,
            (AtomicOp::Or, _) => AtomicMode::Or,
            (AtomicOp::Xor, _) => AtomicMode::Xor,
            (AtomicOp::Xchg | AtomicOp::Cas(_), _) => AtomicMode::Xchg,
        }
    }
}

/// Records an atomic operation on the elements of a target, with a result of rank `N`.
#[track_caller]
pub(crate) fn atomic_on<T: ByteSized, const N: usize>(
    name: &'static str,
    target: Target<'_>,
    op: AtomicOp,
    value: Source,
    options: AtomicOptions<N>,
) -> ValueHandle {
    let AtomicOptions { mask, access } = options;
    let (dtype, signed) = (T::DTYPE, T::SIGNED);
    let atomic = Atomic { place: caller_location(), name, target, dtype, signed, rank: N, op, mask, access };
    record(|t| t.atomic(&atomic, value))
}
