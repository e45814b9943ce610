//! Launches of the manifest: grids and arguments.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use cutlet::Stream;

use super::tensor_map::TensorMap;
use super::{Driver, Kernel, accepted};

/// A kernel with grid and arguments.
pub struct Call {
    kernel: Kernel,
    grid: [u32; 3],
    arguments: Vec<Argument>,
}

/// An argument of a kernel.
enum Argument {
    /// A word whose first 4 or 8 bytes count.
    Word(u64),
    Map(Box<TensorMap>),
}

impl Call {
    /// Reads grid and arguments of a line of the manifest. An array is passed as address, extents
    /// and strides. `p=NAME` or `p=NAME+BYTES` is an address, and `x=NAME,KIND,NUMBERS` is a tensor
    /// map. A list is the address of the words of its arrays and their number.
    pub fn new(
        driver: &Driver,
        kernel: Kernel,
        grid: &str,
        arguments: &str,
        arrays: &HashMap<&str, u64>,
    ) -> Result<Call> {
        let grid: Vec<u32> = grid.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        let address = |name: &str| arrays.get(name).copied().with_context(|| format!("this row has no array {name}"));
        for argument in arguments.split_whitespace() {
            let mut words = Vec::new();
            if let Some(number) = argument.strip_prefix("f=") {
                words.push(u64::from(number.parse::<f32>()?.to_bits()));
            } else if let Some(number) = argument.strip_prefix("i=") {
                words.push(u64::from(number.parse::<i32>()? as u32));
            } else if let Some(number) = argument.strip_prefix("l=") {
                words.push(number.parse::<i64>()? as u64);
            } else if let Some(of) = argument.strip_prefix("p=") {
                let (name, bytes) = of.split_once('+').unwrap_or((of, "0"));
                words.push(address(name)? + bytes.parse::<u64>()?);
            } else if let Some(map) = argument.strip_prefix("x=") {
                let [name, kind, numbers] = map.splitn(3, ',').collect::<Vec<_>>()[..] else { bail!("the map {map}") };
                let numbers: Vec<i64> = numbers.split(',').map(str::parse).collect::<Result<_, _>>()?;
                all.push(Argument::Map(TensorMap::new(driver, address(name)?, kind, &numbers)?));
            } else {
                let Some((name, shape)) = argument.split_once(':') else { bail!("the argument {argument}") };
                let shape: Vec<u64> = shape.split(',').map(str::parse).collect::<Result<_, _>>()?;
                words.push(address(name)?);
                words.extend(&shape);
                words.extend((0..shape.len()).map(|axis| shape[axis + 1..].iter().product::<u64>()));
            }
            all.extend(words.into_iter().map(Argument::Word));
        }
        let [x, y, z] = grid[..] else { bail!("a grid of {} axes", grid.len()) };
        Ok(Call { kernel, grid: [x, y, z], arguments: all })
    }

    /// Queues the kernel.
    pub fn queue(&self, stream: &Stream) -> cutlet::Result<()> {
        let pointer = |argument: &Argument| match argument {
            Argument::Word(word) => std::ptr::from_ref(word).cast_mut().cast::<c_void>(),
            Argument::Map(map) => std::ptr::from_ref(&**map).cast_mut().cast(),
        };
        let mut pointers: Vec<*mut c_void> = self.arguments.iter().map(pointer).collect();
        let [x, y, z] = self.grid;
        // SAFETY: the manifest has the parameters of the cubin; the driver copies them during the
        // call.
        let status = unsafe {
            (self.kernel.launch)(
                self.kernel.function,
                x,
                y,
                z,
                self.kernel.threads,
                1,
                1,
                self.kernel.bytes,
                stream.raw(),
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        accepted(status, "launch")
    }
}
