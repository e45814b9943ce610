//! Copies of the state that work changes, for repeated execution.

use crate::element::{Element, Float};
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::complex::ComplexDeviceArray;
use crate::runtime::array::memory::ALIGNMENT;
use crate::runtime::array::packed::PackedDeviceArray;
use crate::types::packed_formats::Narrow;
use crate::util::collect::CollectVec as _;

/// A state that a [`Tuner`](crate::Tuner::scratch) can copy: arrays, numbers, and tuples, arrays
/// and vectors of these.
///
/// Programs may implement this trait for a struct of their state.
///
/// ```
/// use cutlet::tune::Scratch;
///
/// let given = (cutlet::Device::cpu().full([100], 1.5f32)?, 7u32);
/// let mut copy = given.copy()?;
/// copy.0.copy_from(&[0.0; 100])?;
/// copy.refresh(&given)?;
/// assert_eq!((copy.0.to_vec()?[99], copy.bytes()), (1.5, 400));
/// # Ok::<(), cutlet::Error>(())
/// ```
pub trait Scratch: Sized {
    /// Makes a copy on the same device, for which the generated code is the same.
    ///
    /// # Errors
    /// [`Error::Argument`] for an array with gaps, or one whose address is no multiple of 16 bytes
    /// (both are memory of other libraries); [`Error::Driver`] if there is not enough memory.
    fn copy(&self) -> Result<Self>;

    /// Overwrites this copy with the original state.
    ///
    /// # Errors
    /// [`Error::Argument`] for arrays of other extents.
    fn refresh(&mut self, from: &Self) -> Result<()>;

    /// Returns the bytes of all arrays.
    fn bytes(&self) -> usize;
}

/// Kernels are compiled for facts of arrays. A copy with other facts would measure other code.
#[track_caller]
fn check<T: Element, const R: usize>(array: &DeviceArray<T, R>) -> Result<()> {
    let aligned = array.address().is_multiple_of(16) || array.is_empty();
    if aligned && array.layout.is_contiguous() {
        return Ok(());
    }
    let (shape, strides, address) = (array.layout.shape, array.layout.strides, array.address());
    Err(Error::argument(format!(
        "an array of shape {shape:?} and strides {strides:?} at the address {address:#x} has no copy that the same code is made \
         for: bring it back with `Tuner::restore`, or begin at a multiple of {ALIGNMENT} bytes, without gaps"
    )))
}

impl<T: Element, const R: usize> Scratch for DeviceArray<T, R> {
    #[track_caller]
    fn copy(&self) -> Result<Self> {
        check(self)?;
        let mut copy = self.device().zeros(self.shape())?;
        copy.refresh(self)?;
        Ok(copy)
    }

    #[track_caller]
    fn refresh(&mut self, from: &Self) -> Result<()> {
        self.copy_from_array(&from.view())
    }

    fn bytes(&self) -> usize {
        T::DTYPE.bytes_of(self.len()).unwrap_or(usize::MAX)
    }
}

impl<T: Float, const R: usize> Scratch for ComplexDeviceArray<T, R> {
    #[track_caller]
    fn copy(&self) -> Result<Self> {
        check(self.reals())?;
        let mut copy = self.device().complex_zeros(self.shape())?;
        copy.refresh(self)?;
        Ok(copy)
    }

    #[track_caller]
    fn refresh(&mut self, from: &Self) -> Result<()> {
        self.reals_mut().refresh(from.reals())
    }

    fn bytes(&self) -> usize {
        self.reals().bytes()
    }
}

impl<F: Narrow, const R: usize> Scratch for PackedDeviceArray<F, R> {
    #[track_caller]
    fn copy(&self) -> Result<Self> {
        check(self.as_words())?;
        let mut copy = self.device().packed_zeros(self.shape())?;
        copy.refresh(self)?;
        Ok(copy)
    }

    #[track_caller]
    fn refresh(&mut self, from: &Self) -> Result<()> {
        self.as_words_mut().refresh(from.as_words())
    }

    fn bytes(&self) -> usize {
        self.as_words().bytes()
    }
}

impl<S: Scratch> Scratch for Vec<S> {
    #[track_caller]
    fn copy(&self) -> Result<Self> {
        self.iter().map(S::copy).try_collect_vec()
    }

    #[track_caller]
    fn refresh(&mut self, from: &Self) -> Result<()> {
        if self.len() != from.len() {
            let (own, other) = (self.len(), from.len());
            return Err(Error::argument(format!("a copy of {own} parts cannot be made one of {other}")));
        }
        self.iter_mut().zip(from).try_for_each(|(copy, from)| copy.refresh(from))
    }

    fn bytes(&self) -> usize {
        self.iter().map(S::bytes).sum()
    }
}

impl<S: Scratch, const N: usize> Scratch for [S; N] {
    #[track_caller]
    fn copy(&self) -> Result<Self> {
        let all = self.iter().map(S::copy).try_collect_vec()?;
        Ok(all.try_into().unwrap_or_else(|_| unreachable!("as many copies as parts")))
    }

    #[track_caller]
    fn refresh(&mut self, from: &Self) -> Result<()> {
        self.iter_mut().zip(from).try_for_each(|(copy, from)| copy.refresh(from))
    }

    fn bytes(&self) -> usize {
        self.iter().map(S::bytes).sum()
    }
}

macro_rules! tuples {
    ($($($part:ident $at:tt)*;)+) => {$(
        impl<$($part: Scratch),*> Scratch for ($($part,)*) {
            #[track_caller]
            fn copy(&self) -> Result<Self> {
                Ok(($(self.$at.copy()?,)*))
            }

            #[track_caller]
            fn refresh(&mut self, _from: &Self) -> Result<()> {
                $(self.$at.refresh(&_from.$at)?;)*
                Ok(())
            }

            fn bytes(&self) -> usize {
                0 $(+ self.$at.bytes())*
            }
        }
    )+};
}
tuples! {
    ;
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Scratch for $number {
            fn copy(&self) -> Result<Self> {
                Ok(*self)
            }

            fn refresh(&mut self, from: &Self) -> Result<()> {
                *self = *from;
                Ok(())
            }

            fn bytes(&self) -> usize {
                0
            }
        }
    )+};
}
numbers!(bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 half::f16 half::bf16);
