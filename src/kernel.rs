//! What a kernel and its arguments have to be: the traits between `launch` and the front end.
//!
//! [`LaunchArg`] is one argument as the host passes it. A launch asks it three things: its part of
//! the specialisation key, its parameter words, and (only when nothing compiled fits) its traced
//! value. All three visit the entry's parameters in the same order.

use std::any::Any;

use crate::backend::ParamWord;
use crate::runtime::MemoryUse;

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
#[derive(Clone, Debug)]
pub struct WordWriter {
    inline: [u64; INLINE_WORDS],
    len: usize,
    spill: Vec<u64>,
}

impl Default for WordWriter {
    fn default() -> Self {
        WordWriter { inline: [0; INLINE_WORDS], len: 0, spill: Vec::new() }
    }
}

impl WordWriter {
    /// Appends a word.
    #[inline]
    pub fn push(&mut self, word: u64) {
        if self.spill.is_empty() && self.len < INLINE_WORDS {
            self.inline[self.len] = word;
            self.len += 1;
        } else {
            if self.spill.is_empty() {
                self.spill.extend_from_slice(&self.inline);
            }
            self.spill.push(word);
        }
    }

    /// The words so far.
    #[inline]
    pub fn words(&self) -> &[u64] {
        if self.spill.is_empty() { &self.inline[..self.len] } else { &self.spill }
    }
}

/// A constant argument kept with a compiled kernel, to be compared with later launches.
pub type StoredConstant = Box<dyn Any + Send + Sync>;

/// One argument of a launch.
pub trait LaunchArg {
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
