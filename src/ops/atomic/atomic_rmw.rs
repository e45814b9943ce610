//! Atomic operations on elements of arrays: by index tiles, with the value before as result.
//!
//! Every element is changed in one step that nobody sees the middle of; the tile as a whole is not, and elements come in
//! no particular order. Several indices of one tile may name the same element: each is applied. Nothing happens outside
//! of the array, or where the mask is false; the value before is then 0 (of `atomic_cas`: what was expected).

use crate::dtype::DType;
use crate::element::{ByteSized, Int, Number, bf16, f16};
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, CmpOrder, CmpPred, Elem, MemOrder, Opcode, Overflow, Sign, Type, Value};
use crate::ops::memory::element_index::{Component, GatherIndex, Places, Request, Target};
use crate::ops::memory::memory_order::{Order, Scope};
use crate::ops::memory::tile_access::Visit;
use crate::ops::support::operand::Operand;
use crate::tile::{ArrayMut, Handle, Place, Source, Tile, Trace, ValueHandle, caller_location, record};

/// Element types with atomic addition: i32, i64, u32, u64, f16, bf16, f32, f64.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn add<T: ct::ops::AtomicAdd>(x: Array<T, 1>, sums: ArrayMut<T, 1>) {
///     sums.atomic_store_add(0, x.load(ct::bid(0), [4]));
/// }
///
/// let (x, mut sums) = (ct::Device::cpu().full([12], 0.5f32)?, ct::Device::cpu().zeros([4])?);
/// ct::launch(add::<f32>, 3, (&x, &mut sums))?;
/// assert_eq!(sums.to_vec()?, [1.5; 4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no atomic addition of `{Self}`",
    note = "atomic_add and atomic_sub: i32, i64, u32, u64, f16, bf16, f32, f64"
)]
pub trait AtomicAdd: Number {}

/// Element types with atomic maximum and minimum: i32, i64, u32, u64, f16, bf16, f32, f64.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
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
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
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
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn swap<T: ct::ops::AtomicXchg>(x: ArrayMut<T, 1>, y: ArrayMut<T, 1>) {
///     let i = ct::bid(0);
///     y.entry(i).store(x.entry(0).atomic_xchg(y.entry(i).load()));
/// }
///
/// let (mut x, mut y) = (ct::Device::cpu().full([1], 7)?, ct::Device::cpu().full([1], 9)?);
/// ct::launch(swap::<i32>, 1, (&mut x, &mut y))?;
/// assert_eq!((x.to_vec()?, y.to_vec()?), (vec![9], vec![7]));
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

/// The order of an atomic operation with a result of rank `N`, and which elements it changes. N comes from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // Only counts: in no order with anything else.
/// fn count(x: Array<i32, 1>, bins: ArrayMut<i32, 1>) {
///     let x = x.load([ct::bid(0)], [8]);
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
#[derive(Clone, Copy, Debug)]
pub struct AtomicOptions<const N: usize> {
    mask: Option<Source>,
    order: MemOrder,
    scope: Scope,
    unchecked: bool,
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
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
        AtomicOptions { mask: None, order: MemOrder::AcqRel, scope: Scope::Device, unchecked: false }
    }

    /// In no order with other memory.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn count(y: ArrayMut<i32, 1>) {
    ///     let _before = y.atomic_add_with(0, 1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(count, 8, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn relaxed(self, scope: Scope) -> Self {
        AtomicOptions { order: MemOrder::Relaxed, scope, ..self }
    }

    /// What happened before the release that is read has happened before all that this tile block does afterwards.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // The last of all blocks to come sees what the others stored.
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
    #[must_use]
    pub fn acquire(self, scope: Scope) -> Self {
        AtomicOptions { order: MemOrder::Acquire, scope, ..self }
    }

    /// Whoever acquires what is written sees all that this tile block did before.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn publish(data: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>) {
    ///     data.store(0, ct::full([4], 7));
    ///     let _before = flag.atomic_xchg_with(0, 1, ct::AtomicOptions::new().release(ct::Scope::Device));
    /// }
    ///
    /// let (mut data, mut flag) = (ct::Device::cpu().zeros([4])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(publish, 1, (&mut data, &mut flag))?;
    /// assert_eq!((data.to_vec()?, flag.to_vec()?), (vec![7; 4], vec![1]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn release(self, scope: Scope) -> Self {
        AtomicOptions { order: MemOrder::Release, scope, ..self }
    }

    /// Both: the default, for [`Scope::Device`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // A ticket across several GPUs and the host.
    /// fn count(y: ArrayMut<i32, 1>) {
    ///     let _before = y.atomic_add_with(0, 1, ct::AtomicOptions::new().acq_rel(ct::Scope::System));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(count, 8, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn acq_rel(self, scope: Scope) -> Self {
        AtomicOptions { order: MemOrder::AcqRel, scope, ..self }
    }

    /// Only where this is true: nothing else is accessed, wherever it points.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn count_odd(x: Array<i32, 1>, bins: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     let _before = bins.atomic_add_with(x, 1, ct::AtomicOptions::new().mask((x % 2).eq(1)));
    /// }
    ///
    /// let (x, mut bins) = (ct::Device::cpu().array(&[0, 1, 3, 3], [4])?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(count_odd, 1, (&x, &mut bins))?;
    /// assert_eq!(bins.to_vec()?, [0, 1, 0, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn mask(self, mask: impl Operand<Tile<bool, N>>) -> Self {
        AtomicOptions { mask: Some(mask.source()), ..self }
    }

    /// `false` is a **promise** that every element under the mask lies inside of the array.
    ///
    /// # Safety
    /// With `false`, every index under the mask is inside of its axis, in every tile block of every launch. Else a GPU
    /// changes memory that does not belong to the array.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn count(x: Array<i32, 1>, bins: ArrayMut<i32, 1>) {
    ///     // SAFETY: launched with numbers from 0 to 3 and four bins.
    ///     let options = unsafe { ct::AtomicOptions::new().check_bounds(false) };
    ///     let _before = bins.atomic_add_with(x.load(0, [4]), 1, options);
    /// }
    ///
    /// let (x, mut bins) = (ct::Device::cpu().array(&[0, 1, 3, 3], [4])?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(count, 1, (&x, &mut bins))?;
    /// assert_eq!(bins.to_vec()?, [1, 1, 0, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn check_bounds(self, check: bool) -> Self {
        AtomicOptions { unchecked: !check, ..self }
    }
}

/// What is done to each element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Add,
    Sub,
    Max,
    Min,
    And,
    Or,
    Xor,
    Xchg,
    /// With what is expected.
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
    deed: Deed,
    mask: Option<Source>,
    order: Order,
}

impl<'a> Atomic<'a> {
    /// What changes a tile of an array, relaxed, at these positions along its axes.
    pub fn of_view(visit: &Visit<'_>, index: &'a [Component], deed: Deed, signed: bool) -> Atomic<'a> {
        let Visit { place, name, array, dtype, .. } = *visit;
        let order = Order::new(MemOrder::Relaxed, Scope::Device);
        let (rank, unchecked) = (visit.shape.len(), visit.access.is_unchecked());
        let target = Target::Elements { array, index, unchecked };
        Atomic { place, name, target, dtype, signed, rank, deed, mask: None, order }
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
        let expected = match atomic.deed {
            Deed::Cas(expected) => Some(expected),
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
        })?;
        let value = self.stretched_operand(atomic.place, value, atomic.dtype, &shape)?;
        let values = Values { pointers, mask, shape };
        let float = atomic.dtype.is_float();
        Some(match atomic.deed {
            Deed::Cas(expected) => {
                let expected = self.stretched_operand(atomic.place, expected, atomic.dtype, &values.shape)?;
                self.compare_and_swap(atomic, &values, expected, value)
            }
            Deed::Max | Deed::Min if float => self.float_extremum(atomic, &values, value),
            Deed::Sub => {
                let (code, attrs) = match float {
                    true => (Opcode::NegF, vec![]),
                    false => (Opcode::NegI, vec![Attr::Overflow(Overflow::None)]),
                };
                let negative = self.put(code, &[value], attrs, atomic.dtype, &values.shape);
                let mode = Deed::Add.mode(atomic.dtype, atomic.signed);
                self.update(atomic, mode, atomic.dtype, &values, negative)
            }
            deed => self.update(atomic, deed.mode(atomic.dtype, atomic.signed), atomic.dtype, &values, value),
        })
    }

    /// A read-modify-write; the value before, 0 where the mask is false.
    fn update(&mut self, atomic: &Atomic<'_>, mode: AtomicMode, dtype: DType, values: &Values, value: Value) -> Value {
        let Values { pointers, mask, shape } = values;
        let mut attrs = atomic.order.attrs();
        attrs.push(Attr::AtomicMode(mode));
        let types = [Type::tile(dtype, shape.as_slice()), Type::Token].map(|ty| self.builder.module.intern(ty));
        let mask_group: Vec<Value> = mask.iter().copied().collect();
        let old = self.emit(Opcode::AtomicRmw, &[&[*pointers], &[value], &mask_group, &[]], attrs, vec![], &types)[0];
        match mask {
            Some(mask) => {
                // Tile IR leaves open what comes back where nothing happened.
                let zero = self.splat(dtype, 0, shape);
                self.put(Opcode::Select, &[*mask, old, zero], vec![], dtype, shape)
            }
            None => old,
        }
    }

    fn compare_and_swap(&mut self, atomic: &Atomic<'_>, values: &Values, expected: Value, value: Value) -> Value {
        let Values { pointers, mask, shape } = values;
        let types = [Type::tile(atomic.dtype, shape.as_slice()), Type::Token].map(|ty| self.builder.module.intern(ty));
        let mask: Vec<Value> = mask.iter().copied().collect();
        let groups: [&[Value]; 5] = [&[*pointers], &[expected], &[value], &mask, &[]];
        self.emit(Opcode::AtomicCas, &groups, atomic.order.attrs(), vec![], &types)[0]
    }

    /// Maximum or minimum of floats as integers. Patterns without a sign bit are ordered as integers are, those with one
    /// the other way round; so a value without sign goes by the signed order, and one with by the unsigned order in the
    /// other direction, whatever stands in memory. A NaN is replaced by the pattern that changes no pattern: all bits set
    /// for the maximum, which is the largest unsigned integer, and all but the sign for the minimum, the largest signed
    /// one. An infinity changes a NaN beyond it.
    fn float_extremum(&mut self, atomic: &Atomic<'_>, values: &Values, value: Value) -> Value {
        let shape = &values.shape;
        let maximum = matches!(atomic.deed, Deed::Max);
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
        // One of them did nothing, and gives 0.
        let old = self.put(Opcode::OrI, &olds, vec![], dtype, shape);
        self.put(Opcode::Bitcast, &[old], vec![], atomic.dtype, shape)
    }
}

impl Deed {
    /// How Tile IR calls it on elements of this type.
    pub fn mode(self, dtype: DType, signed: bool) -> AtomicMode {
        match (self, signed) {
            (Deed::Add | Deed::Sub, _) if dtype.is_float() => AtomicMode::AddF,
            (Deed::Add | Deed::Sub, _) => AtomicMode::Add,
            (Deed::Max, true) => AtomicMode::Max,
            (Deed::Max, false) => AtomicMode::UMax,
            (Deed::Min, true) => AtomicMode::Min,
            (Deed::Min, false) => AtomicMode::UMin,
            (Deed::And, _) => AtomicMode::And,
            (Deed::Or, _) => AtomicMode::Or,
            (Deed::Xor, _) => AtomicMode::Xor,
            (Deed::Xchg | Deed::Cas(_), _) => AtomicMode::Xchg,
        }
    }
}

/// An example of an atomic operation `$call` of 3 on an element that is 6, and what comes of it.
macro_rules! example {
    ($parameters:literal, $($call:expr),+; $after:literal) => {
        concat!(
            "```\n# use cutlet as ct;\n# use cutlet::prelude::*;\nfn kernel(", $parameters, ", before: ArrayMut<i32, 1>) {\n    ",
            $($call),+,
            "\n    before.store_scalar(0, old);\n}\n\n\
             let (mut x, mut before) = (ct::Device::cpu().full([2], 6)?, ct::Device::cpu().zeros([1])?);\n\
             ct::launch(kernel, 1, (&mut x, &mut before))?;\n\
             assert_eq!((x.to_vec()?, before.to_vec()?), (vec![6, ", $after, "], vec![6]));\n\
             # Ok::<(), ct::Error>(())\n```"
        )
    };
}
pub(crate) use example;

macro_rules! atomics {
    ($($bound:ident $deed:ident $name:ident $with:ident $after:literal $doc:literal;)+) => {$(
        impl<T: $bound, const R: usize> ArrayMut<T, R> {
            #[doc = $doc]
            /// The index is that of [`Array::gather`](crate::Array::gather), stretched together with the value; one
            /// element by scalars is an [`entry`](ArrayMut::entry). Acquires and releases for the device.
            ///
            #[doc = example!(
                "x: ArrayMut<i32, 1>", "let old = x.", stringify!($name), "(ct::astile([1]), 3).item();"; $after
            )]
            #[track_caller]
            pub fn $name<const N: usize>(
                self,
                index: impl GatherIndex<R, N>,
                value: impl Operand<Tile<T, N>>,
            ) -> Tile<T, N> {
                self.atomic(stringify!($name), Deed::$deed, index, value.source(), AtomicOptions::new())
            }

            #[doc = concat!("[`ArrayMut::", stringify!($name), "`] with mask, order and bounds check as stated.")]
            ///
            #[doc = example!(
                "x: ArrayMut<i32, 1>", "let options = ct::AtomicOptions::new().mask(ct::astile([false, true]));\n    ",
                "let old = x.", stringify!($with), "(ct::astile([0, 1]), 3, options).get(1);"; $after
            )]
            #[track_caller]
            pub fn $with<const N: usize>(
                self,
                index: impl GatherIndex<R, N>,
                value: impl Operand<Tile<T, N>>,
                options: AtomicOptions<N>,
            ) -> Tile<T, N> {
                self.atomic(stringify!($name), Deed::$deed, index, value.source(), options)
            }
        }
    )+};
}
atomics! {
    AtomicAdd Add atomic_add atomic_add_with "9" "Adds to elements; gives the values before. Floats round once, to nearest \
        even. Of f32, subnormal elements, values and sums are zeros of the same sign, as `red.add.f32` has it; in \
        [`scratch`](crate::scratch) memory the cpu and ptx back ends keep them. f16, bf16 and f64 keep them everywhere.";
    AtomicAdd Sub atomic_sub atomic_sub_with "3" "Subtracts from elements; gives the values before. The values with \
        the other sign are added, as [`ArrayMut::atomic_add`] does it.";
    AtomicMinMax Max atomic_max atomic_max_with "6" "The larger of element and value; gives the values before. A value that is \
        NaN changes no element, also none that is NaN; -0 is below +0. An element that is NaN is above all numbers, or below \
        them if its sign bit is set: a number replaces it, or leaves it, accordingly.";
    AtomicMinMax Min atomic_min atomic_min_with "3" "The smaller of element and value; gives the values before. A value that is \
        NaN changes no element, also none that is NaN; -0 is below +0. An element that is NaN is above all numbers, or below \
        them if its sign bit is set: a number replaces it, or leaves it, accordingly.";
    AtomicBits And atomic_and atomic_and_with "2" "Bitwise and; gives the values before.";
    AtomicBits Or atomic_or atomic_or_with "7" "Bitwise or; gives the values before.";
    AtomicBits Xor atomic_xor atomic_xor_with "5" "Bitwise exclusive or; gives the values before.";
    AtomicXchg Xchg atomic_xchg atomic_xchg_with "3" "Replaces elements; gives the values before.";
}

impl<T: AtomicXchg, const R: usize> ArrayMut<T, R> {
    /// Replaces the elements that have the expected bits; gives the values before, and what was expected where nothing was
    /// looked at. Acquires and releases for the device.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// // The first of all tile blocks wins.
    /// fn win(winner: ArrayMut<i32, 1>, won: ArrayMut<i32, 1>) {
    ///     let place = ct::zeros::<i32, 1>([1]);
    ///     let before = winner.atomic_cas(place, -1, ct::bid(0));
    ///     won.store([ct::bid(0)], before.eq(-1).cast::<i32>());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (mut winner, mut won) = (device.array(&[-1], [1])?, device.zeros([16])?);
    /// ct::launch(win, 16, (&mut winner, &mut won))?;
    /// assert_eq!(won.to_vec()?.iter().sum::<i32>(), 1);
    /// assert_eq!(won.to_vec()?[winner.to_vec()?[0] as usize], 1);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn atomic_cas<const N: usize>(
        self,
        index: impl GatherIndex<R, N>,
        expected: impl Operand<Tile<T, N>>,
        desired: impl Operand<Tile<T, N>>,
    ) -> Tile<T, N> {
        self.atomic_cas_with(index, expected, desired, AtomicOptions::new())
    }

    /// [`ArrayMut::atomic_cas`] with mask, order and bounds check as stated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn claim(owner: ArrayMut<i32, 1>, wanted: Array<i32, 1>) {
    ///     let wanted = wanted.load(0, [4]);
    ///     let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device).mask(wanted.ge(0));
    ///     let _before = owner.atomic_cas_with(wanted, -1, 7, options);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (mut owner, wanted) = (device.array(&[-1, 3, -1], [3])?, device.array(&[0, 1, -5, -5], [4])?);
    /// ct::launch(claim, 1, (&mut owner, &wanted))?;
    /// assert_eq!(owner.to_vec()?, [7, 3, -1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn atomic_cas_with<const N: usize>(
        self,
        index: impl GatherIndex<R, N>,
        expected: impl Operand<Tile<T, N>>,
        desired: impl Operand<Tile<T, N>>,
        options: AtomicOptions<N>,
    ) -> Tile<T, N> {
        self.atomic("atomic_cas", Deed::Cas(expected.source()), index, desired.source(), options)
    }
}

impl<T: ByteSized, const R: usize> ArrayMut<T, R> {
    #[track_caller]
    fn atomic<const N: usize>(
        self,
        name: &'static str,
        deed: Deed,
        index: impl GatherIndex<R, N>,
        value: Source,
        options: AtomicOptions<N>,
    ) -> Tile<T, N> {
        let (array, index, unchecked) = (self.handle, &index.components(), options.unchecked);
        let target = Target::Elements { array, index, unchecked };
        Tile::from_raw(atomic_on::<T, N>(name, target, deed, value, options))
    }
}

/// Records an atomic operation on what the target names, with a result of rank `N`.
#[track_caller]
pub(crate) fn atomic_on<T: ByteSized, const N: usize>(
    name: &'static str,
    target: Target<'_>,
    deed: Deed,
    value: Source,
    options: AtomicOptions<N>,
) -> ValueHandle {
    let AtomicOptions { mask, order, scope, .. } = options;
    let (dtype, signed, order) = (T::DTYPE, T::SIGNED, Order::new(order, scope));
    let atomic = Atomic { place: caller_location(), name, target, dtype, signed, rank: N, deed, mask, order };
    record(|t| t.atomic(&atomic, value))
}
