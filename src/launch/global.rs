//! Globals of compiled kernels, from the host.

use super::compiled::CompiledKernel;
use super::executable::Code;
use crate::element::Number;
use crate::error::{Error, Result};
use crate::ops::Global;

/// Bytes of one element.
fn size<T: Number>() -> usize {
    T::DTYPE.storage_bits() as usize / 8
}

impl<T: Number, const N: usize> Global<T, N> {
    /// The values in a compiled kernel; waits for all work on its device.
    ///
    /// # Errors
    /// [`Error::Argument`] when the kernel does not name this static; [`Error::Driver`] when earlier work on the device
    /// failed, [`Error::Execution`] when an assertion did.
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

    /// Replaces the values in a compiled kernel; waits for all work on its device before.
    ///
    /// # Errors
    /// As [`Global::read`].
    #[track_caller]
    pub fn write<Args>(&'static self, kernel: &CompiledKernel<Args>, values: [T; N]) -> Result<()> {
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| value.to_bits().to_le_bytes().into_iter().take(size::<T>())).collect();
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
