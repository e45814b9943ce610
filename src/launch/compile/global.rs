//! Access of the host to globals of compiled kernels.

use super::executable::Code;
use crate::element::Number;
use crate::error::{Error, Result};
use crate::launch::inspect::compiled_kernel::CompiledKernel;
use crate::ops::Global;
use crate::util::collect::CollectVec as _;

/// Returns the bytes of one element.
fn size<T: Number>() -> usize {
    T::DTYPE.storage_bits() as usize / 8
}

impl<T: Number, const N: usize> Global<T, N> {
    /// Returns the values in a compiled kernel, after all work on its device is complete.
    ///
    /// # Errors
    /// * [`Error::Argument`] if the kernel does not use this static;
    /// * [`Error::Driver`] if earlier work on the device failed;
    /// * [`Error::Execution`] if an assertion failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// static CALLS: ct::Global<i32, 1> = ct::Global::new([0]);
    ///
    /// let count = ct::compile(|x: Array<i32, 1>| { let _before = CALLS.array().entry(0).atomic_add(x.load_scalar(0)); }, (&ct::Device::cpu().full([1], 2)?,))?;
    /// count.launch(3, (&ct::Device::cpu().full([1], 2)?,))?;
    /// assert_eq!(CALLS.read(&count)?, [6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn read<Args>(&'static self, kernel: &CompiledKernel<Args>) -> Result<[T; N]> {
        let mut bytes = vec![0; N * size::<T>()];
        kernel.device().synchronize()?;
        let found = match &kernel.executable().code {
            Code::Cpu(program, _) => program.read_global(&self.name(), &mut bytes),
            Code::Gpu(code) => match code.symbol(&self.name()) {
                Some(symbol) => code.kernel.read_global(symbol, &mut bytes).map(|()| true)?,
                None => false,
            },
        };
        self.check(found, kernel)?;
        Ok(std::array::from_fn(|i| {
            let mut word = [0; 8];
            word[..size::<T>()].copy_from_slice(&bytes[i * size::<T>()..][..size::<T>()]);
            T::from_bits(u64::from_le_bytes(word))
        }))
    }

    /// Replaces the values in a compiled kernel, after all work on its device is complete.
    ///
    /// # Errors
    /// As [`Global::read`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// static FACTOR: ct::Global<i32, 1> = ct::Global::new([1]);
    ///
    /// let mut x = ct::Device::cpu().full([1], 2)?;
    /// let scale = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, x.load(0, [1]) * FACTOR.array().load(0, [1])), (&mut x,))?;
    /// FACTOR.write(&scale, [5])?;
    /// scale.launch(1, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [10]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn write<Args>(&'static self, kernel: &CompiledKernel<Args>, values: [T; N]) -> Result<()> {
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| value.to_bits().to_le_bytes().into_iter().take(size::<T>())).collect_vec();
        kernel.device().synchronize()?;
        let found = match &kernel.executable().code {
            Code::Cpu(program, _) => program.write_global(&self.name(), &bytes),
            Code::Gpu(code) => match code.symbol(&self.name()) {
                Some(symbol) => code.kernel.write_global(symbol, &bytes).map(|()| true)?,
                None => false,
            },
        };
        self.check(found, kernel)
    }

    #[track_caller]
    fn check<Args>(&'static self, found: bool, kernel: &CompiledKernel<Args>) -> Result<()> {
        match found {
            true => Ok(()),
            false => Err(Error::argument(format!(
                "kernel `{}` does not use this global: a kernel has those whose `array()` it asks for",
                kernel.name()
            ))),
        }
    }
}
