//! Supertrait of the sealed traits: public traits that only this crate implements.
//!
//! A sealed trait gets further methods without a break of programs (Rust API Guidelines,
//! C-SEALED). The types of this crate implement [`Sealed`] next to their definition, element types
//! in `types/element.rs`, tuples next to `LaunchArg`.

use std::ops::{Range, RangeFrom, RangeFull, RangeTo};

/// Types with implementations of sealed traits. Programs cannot name it.
///
/// A foreign type such as `Vec<X>` has it for each `X`: programs cannot implement traits of this
/// crate for foreign types. `&X` and `&mut X` count as types of the program that defines `X`.
#[doc(hidden)]
pub trait Sealed {}

impl<X: Sealed + ?Sized> Sealed for &X {}
impl<X: Sealed + ?Sized> Sealed for &mut X {}
impl<X, const N: usize> Sealed for [X; N] {}
impl<X> Sealed for Vec<X> {}
impl<X> Sealed for Option<X> {}
impl<X> Sealed for Range<X> {}
impl<X> Sealed for RangeFrom<X> {}
impl<X> Sealed for RangeTo<X> {}
impl Sealed for RangeFull {}
impl Sealed for isize {}
impl Sealed for usize {}
