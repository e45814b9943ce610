//! What a kernel and its arguments have to be: the traits between `launch` and the front end.
//!
//! [`LaunchArg`] is one argument as the host passes it. A launch asks it three things: its part of
//! the specialisation key, its parameter words, and (only when nothing compiled fits) its traced
//! value. All three visit the entry's parameters in the same order. Arrays implement it in `runtime`;
//! numbers, [`Constant`] and tuples here. [`Kernel`] is a function that takes the traced values, and
//! [`trace_kernel`] runs it once.
//!
//! A launch hands addresses to code that was compiled for what [`LaunchArg::key`] said, so `LaunchArg` is
//! sealed: parameter words, declared parameters and memory of an argument agree because they are written
//! here and in `runtime`. Arguments of other types are made of these: a tuple of them is one, and whatever
//! takes a value apart into such a tuple, and the traced tuple together again, needs no unsafe code.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;

use crate::backend::ParamWord;
use crate::element::{Element, bf16, f8e4m3fn, f8e5m2, f8e8m0fnu, f16, tf32};
use crate::error::Result;
use crate::ir::Module;
use crate::runtime::MemoryUse;
use crate::tile::{self, Scalar, Tracer, here, trace_into_module};

/// What the launch knows about an array and compiles in.
///
/// Part of the specialisation key; the trace states it as `assume` ops and constant strides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArrayFacts {
    /// Extents and strides are i64 (else i32): chosen when an element offset may not fit 31 bits.
    pub index64: bool,
    /// The base address is a multiple of this many bytes: 16, or the element size.
    pub base_align: u32,
    /// Bit d: the stride of dimension d is 1.
    pub unit_stride: u32,
    /// Bit d: the extent of dimension d is a multiple of 16.
    pub extent_div16: u32,
    /// Bit d: the stride of dimension d is a multiple of 16 elements.
    pub stride_div16: u32,
}

/// The most words of a specialisation key or of parameters that a launch handles without allocating.
pub const INLINE_WORDS: usize = 96;

/// Words written one after another, without allocation up to [`INLINE_WORDS`].
pub struct WordWriter {
    /// The first `len` are written, unless `spill` is in use. Not zeroed beforehand: that would take
    /// longer than the rest of a key.
    inline: [MaybeUninit<u64>; INLINE_WORDS],
    len: usize,
    /// All words, once there are more than fit inline.
    spill: Vec<u64>,
}

impl Default for WordWriter {
    #[inline]
    fn default() -> Self {
        WordWriter { inline: [const { MaybeUninit::uninit() }; INLINE_WORDS], len: 0, spill: Vec::new() }
    }
}

impl fmt::Debug for WordWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.words()).finish()
    }
}

impl WordWriter {
    /// Appends a word.
    #[inline]
    pub fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.len) {
            Some(place) if self.spill.is_empty() => {
                place.write(word);
                self.len += 1;
            }
            _ => self.push_spilled(word),
        }
    }

    #[cold]
    fn push_spilled(&mut self, word: u64) {
        if self.spill.is_empty() {
            self.spill = self.words().to_vec();
        }
        self.spill.push(word);
    }

    /// The words so far.
    #[inline]
    pub fn words(&self) -> &[u64] {
        if self.spill.is_empty() {
            // SAFETY: the first `len` words are written.
            unsafe { std::slice::from_raw_parts(self.inline.as_ptr().cast::<u64>(), self.len) }
        } else {
            &self.spill
        }
    }
}

/// A constant argument kept with a compiled kernel, to be compared with later launches.
pub type StoredConstant = Box<dyn Any + Send + Sync>;

pub(crate) mod sealed {
    /// What may be an argument of a launch. See the head of [`super`].
    pub trait Sealed {}
}

use self::sealed::Sealed;

/// One argument of a launch: an array or a view of one, a number, a [`Constant`], a tuple of arguments.
///
/// Sealed: a launch trusts that the methods agree with each other.
pub trait LaunchArg: Sealed {
    /// What the kernel function receives.
    type Traced;

    /// Writes everything that the compiled code depends on; constants write a hash. No allocation.
    fn key(&self, key: &mut WordWriter);

    /// Appends clones of the constants of this argument.
    fn store_constants(&self, _out: &mut Vec<StoredConstant>) {}

    /// Compares the constants of this argument with stored ones, in order.
    fn same_constants(&self, _stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
        true
    }

    /// Declares the entry parameters of this argument and gives the traced value.
    fn trace(&self, tracer: &mut crate::tile::Tracer) -> Self::Traced;

    /// Visits the memory behind the arrays of this argument: what a launch checks for its device and orders
    /// on its stream.
    fn memory(&self, _visit: &mut dyn FnMut(MemoryUse<'_>)) {}

    /// Writes the parameter words, in the order in which [`LaunchArg::trace`] declares them.
    fn pack(&self, params: &mut dyn FnMut(ParamWord));
}

macro_rules! scalar_argument {
    ($($name:ident)+) => {$(
        impl Sealed for $name {}

        impl LaunchArg for $name {
            type Traced = Scalar<$name>;

            #[inline]
            fn key(&self, _key: &mut WordWriter) {}

            fn trace(&self, tracer: &mut Tracer) -> Scalar<$name> {
                tracer.scalar()
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                params(Element::to_bits(*self))
            }
        }
    )+};
}
scalar_argument!(f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);

/// A value that is compiled into the kernel: tile extents, a flag, an enum, a configuration.
///
/// The kernel receives the value itself, an ordinary Rust value, and each different value is compiled
/// once. Use it for everything that decides the shape of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constant<X>(pub X);

impl<X> Sealed for Constant<X> {}

impl<X: Hash + Eq + Clone + Send + Sync + 'static> LaunchArg for Constant<X> {
    type Traced = X;

    #[inline]
    fn key(&self, key: &mut WordWriter) {
        let mut hasher = rustc_hash::FxHasher::default();
        self.0.hash(&mut hasher);
        key.push(hasher.finish());
    }

    fn store_constants(&self, out: &mut Vec<StoredConstant>) {
        out.push(Box::new(self.0.clone()));
    }

    #[inline]
    fn same_constants(&self, stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
        stored.next().and_then(|other| other.downcast_ref::<X>()) == Some(&self.0)
    }

    fn trace(&self, _tracer: &mut Tracer) -> X {
        self.0.clone()
    }

    #[inline]
    fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {}
}

/// All arguments of a launch: a tuple of up to 16 [`LaunchArg`]s.
pub trait LaunchArgs: LaunchArg {}

/// A function or closure that can be launched with arguments that trace to the tuple `Args`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be launched with arguments that a kernel receives as `{Args}`",
    note = "`&DeviceArray` arrives as `Array`, `&mut DeviceArray` as `ArrayMut`, a number as `Scalar`, \
            `Constant(x)` as x, a tuple as a tuple; kernels are `Fn` and return nothing"
)]
pub trait Kernel<Args> {
    /// Calls the function.
    fn call(&self, args: Args);
}

/// Refuses to launch a kernel inside of another one.
///
/// # Errors
/// [`crate::Error::Kernel`] at the caller's place.
#[inline]
#[track_caller]
pub(crate) fn refuse_nested(name: impl Fn() -> String) -> Result<()> {
    tile::refuse_nested(name, here())
}

/// The name of a kernel for messages, dumps and entries: the function's path without generics, as an
/// identifier.
pub(crate) fn name_of<K>() -> String {
    entry_name(std::any::type_name::<K>())
}

/// The last part of a type's path, as an identifier: `app::scale<f32>` gives `scale`.
fn entry_name(path: &str) -> String {
    let plain = path.split('<').next().unwrap_or_default();
    let mut parts = plain.rsplit("::");
    let name = match parts.next().unwrap_or_default() {
        "{{closure}}" => format!("{}_closure", parts.find(|p| *p != "{{closure}}").unwrap_or("kernel")),
        last => last.to_string(),
    };
    let ident: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if ident.starts_with(|c: char| c.is_ascii_alphabetic()) { ident } else { format!("kernel_{ident}") }
}

macro_rules! tuples {
    ($(($($arg:ident $index:tt),*))+) => {$(
        impl<$($arg: LaunchArg),*> Sealed for ($($arg,)*) {}

        #[allow(clippy::unused_unit)]
        impl<$($arg: LaunchArg),*> LaunchArg for ($($arg,)*) {
            type Traced = ($($arg::Traced,)*);

            #[inline]
            fn key(&self, _key: &mut WordWriter) {
                $(self.$index.key(_key);)*
            }
            fn store_constants(&self, _out: &mut Vec<StoredConstant>) {
                $(self.$index.store_constants(_out);)*
            }
            #[inline]
            fn same_constants(&self, _stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
                true $(&& self.$index.same_constants(_stored))*
            }
            fn trace(&self, _tracer: &mut Tracer) -> Self::Traced {
                ($(self.$index.trace(_tracer),)*)
            }
            fn memory(&self, _visit: &mut dyn FnMut(MemoryUse<'_>)) {
                $(self.$index.memory(_visit);)*
            }
            #[inline]
            fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {
                $(self.$index.pack(_params);)*
            }
        }

        impl<$($arg: LaunchArg),*> LaunchArgs for ($($arg,)*) {}

        impl<Function, $($arg),*> Kernel<($($arg,)*)> for Function
        where
            Function: Fn($($arg),*),
        {
            fn call(&self, _args: ($($arg,)*)) {
                self($(_args.$index),*)
            }
        }
    )+};
}
tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15)
}

/// Runs a kernel once with the traced values of `args` and gives the module, with one entry `name`.
///
/// # Errors
/// [`crate::Error::Kernel`] with everything that is wrong in the kernel, or when another kernel is
/// being traced on this thread.
///
/// # Panics
/// When the kernel does; nothing of the trace remains.
#[track_caller]
pub fn trace_kernel<K, A>(name: &str, kernel: &K, args: &A) -> Result<Module>
where
    A: LaunchArgs,
    K: Kernel<A::Traced>,
{
    trace_into_module(name, here(), &|tracer| kernel.call(args.trace(tracer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_the_inline_ones_are_kept() {
        for count in [0, 1, INLINE_WORDS, INLINE_WORDS + 1, 3 * INLINE_WORDS] {
            let mut writer = WordWriter::default();
            (0..count as u64).for_each(|word| writer.push(word));
            assert!(writer.words().iter().copied().eq(0..count as u64), "{count}");
        }
    }
}
