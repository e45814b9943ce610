//! Random numbers in the arrays of a row, for measurements without other contents: the contents
//! determine the power of copies and products.

use std::any::Any;

use cutlet as ct;
use cutlet::element::{CastTo, Element};
use cutlet::packed::Narrow;
use cutlet::prelude::*;

/// Arrays that can be filled.
pub trait Fill {
    /// Floats become normal numbers, integers numbers of places in an array as long as theirs,
    /// bytes anything; other contents do not change. Another seed for each array.
    fn fill(&mut self, seed: &mut u64) -> ct::Result<()>;
}

/// Elements of a tile.
const TILE: usize = 2048;

fn normal<T: Element>(y: ArrayMut<T, 1>, seed: Scalar<u64>)
where
    f32: CastTo<T>,
{
    let i = ct::bid(0);
    y.store(i, ct::random::Philox::new(seed, 0).normal::<f32, 1>(i, [TILE]).cast::<T>());
}

fn places(y: ArrayMut<i32, 1>, seed: Scalar<u64>, count: Scalar<i32>) {
    let i = ct::bid(0);
    y.store(i, ct::random::Philox::new(seed, 0).range(i, [TILE], ct::scalar(0)..count));
}

fn bytes(y: ArrayMut<u8, 1>, seed: Scalar<u64>) {
    let i = ct::bid(0);
    y.store(i, ct::random::Philox::new(seed, 0).bits(i, [TILE]).cast::<u8>());
}

/// True where the array has elements of this type.
fn filled<T: Element, const R: usize>(array: &mut dyn Any, seed: u64) -> ct::Result<bool>
where
    f32: CastTo<T>,
{
    let Some(array) = array.downcast_mut::<ct::DeviceArray<T, R>>() else { return Ok(false) };
    let count = array.len();
    ct::launch(normal::<T>, count.div_ceil(TILE), (array.view_mut().reshape([count])?, seed))?;
    Ok(true)
}

impl<T: Element, const R: usize> Fill for ct::DeviceArray<T, R> {
    fn fill(&mut self, seed: &mut u64) -> ct::Result<()> {
        let count = self.len();
        *seed += 1;
        let array: &mut dyn Any = self;
        if count == 0
            || filled::<f32, R>(array, *seed)?
            || filled::<f16, R>(array, *seed)?
            || filled::<bf16, R>(array, *seed)?
            || filled::<f8e4m3fn, R>(array, *seed)?
        {
            return Ok(());
        }
        let blocks = count.div_ceil(TILE);
        if let Some(array) = array.downcast_mut::<ct::DeviceArray<i32, R>>() {
            let most = i32::try_from(count).unwrap_or(i32::MAX);
            ct::launch(places, blocks, (array.view_mut().reshape([count])?, *seed, most))?;
        } else if let Some(array) = array.downcast_mut::<ct::DeviceArray<u8, R>>() {
            ct::launch(bytes, blocks, (array.view_mut().reshape([count])?, *seed))?;
        }
        Ok(())
    }
}

impl<const R: usize> Fill for ct::packed::PackedDeviceArray<ct::packed::u4, R> {
    fn fill(&mut self, _: &mut u64) -> ct::Result<()> {
        let codes: Vec<ct::packed::u4> =
            (0..self.len()).map(|i| ct::packed::u4::from_code((i * 7 % 16) as u8)).collect();
        self.copy_from(&codes)
    }
}

impl<S: Fill> Fill for Vec<S> {
    fn fill(&mut self, seed: &mut u64) -> ct::Result<()> {
        self.iter_mut().try_for_each(|part| part.fill(seed))
    }
}

impl<S: Fill, const N: usize> Fill for [S; N] {
    fn fill(&mut self, seed: &mut u64) -> ct::Result<()> {
        self.iter_mut().try_for_each(|part| part.fill(seed))
    }
}

macro_rules! tuples {
    ($($($part:ident $at:tt)+;)+) => {$(
        impl<$($part: Fill),+> Fill for ($($part,)+) {
            fn fill(&mut self, seed: &mut u64) -> ct::Result<()> {
                $(self.$at.fill(seed)?;)+
                Ok(())
            }
        }
    )+};
}

tuples! {
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
}
