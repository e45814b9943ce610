//! A row: one call of a kernel at one size.

use std::time::Duration;

use anyhow::Result;
use cutlet as ct;
use cutlet::{Bench, Device, Target};
use cutlet_kernels::choice::{Search, searched};
use cutlet_kernels::inspect::{Subject, inspect};

use crate::assembled;

/// The unit that computes, with its peak on an H100 SXM in FLOP/s (NVIDIA's data sheet, without
/// sparsity).
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "rows are added one by one")]
pub enum Peak {
    F64,
    F64Tensor,
    F32,
    Tf32,
    F16,
    F8,
    I8,
}

impl Peak {
    fn flops(self) -> f64 {
        match self {
            Peak::F64 => 34e12,
            Peak::F64Tensor | Peak::F32 => 67e12,
            Peak::Tf32 => 495e12,
            Peak::F16 => 989e12,
            Peak::F8 | Peak::I8 => 1979e12,
        }
    }
}

/// Least work of a call.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes of memory that are read and written at least.
    pub bytes: f64,
    pub flops: f64,
    pub peak: Peak,
}

/// Bytes a second of the memory of an H100 SXM and of an H200 (NVIDIA's data sheets).
fn bandwidth(device: &str) -> f64 {
    if device.contains("H200") { 4.8e12 } else { 3.35e12 }
}

impl Work {
    /// Work that memory bounds.
    pub fn bytes(bytes: f64) -> Work {
        Work { bytes, flops: 0.0, peak: Peak::F32 }
    }

    /// Returns the least time in seconds.
    fn least(self, device: &str) -> f64 {
        (self.bytes / bandwidth(device)).max(self.flops / self.peak.flops())
    }
}

/// A call with its arrays.
pub type Call = Box<dyn FnMut() -> ct::Result<()>>;

/// One call of a kernel at one size.
pub struct Row {
    /// Kernel, element type and extents.
    pub name: String,
    work: Work,
    open: Box<dyn Fn(Device) -> ct::Result<Call>>,
}

impl Row {
    /// A row whose arrays `open` allocates. `call` launches on the default stream.
    pub fn new<S: 'static>(
        name: impl Into<String>,
        work: Work,
        open: impl Fn(Device) -> ct::Result<S> + 'static,
        call: impl Fn(&mut S) -> ct::Result<()> + Copy + 'static,
    ) -> Row {
        let open = move |device: Device| -> ct::Result<Call> {
            let mut state = open(device)?;
            Ok(Box::new(move || call(&mut state)))
        };
        Row { name: name.into(), work, open: Box::new(open) }
    }

    /// Prints the time, and the fraction of the roofline.
    pub fn measure(&self, device: Device, runs: usize) -> Result<()> {
        let count = Bench::cold_sets(device, self.work.bytes as usize).min(8);
        let mut sets = (0..count).map(|_| (self.open)(device)).collect::<ct::Result<Vec<Call>>>()?;
        let times = Bench::new().runs(runs).run_sets(&device.default_stream(), &mut sets, |call| call())?;
        let time = times.median();
        println!("{}\t{}\t{}", self.name, micros(time), self.rates(time, device.name()));
        Ok(())
    }

    /// Measures all configurations of the kernels, and adds the records to a file.
    pub fn tune(&self, device: Device, file: &str) -> Result<()> {
        let mut call = (self.open)(device)?;
        searched(&Search::new().record(file).limit(Duration::from_secs(1)), &mut call)?;
        println!("{}\ttuned", self.name);
        Ok(())
    }

    fn rates(&self, time: Duration, device: &str) -> String {
        let seconds = time.as_secs_f64();
        let (gigabytes, teraflops) = (self.work.bytes / seconds / 1e9, self.work.flops / seconds / 1e12);
        format!("{gigabytes:.0} GB/s\t{teraflops:.1} TFLOP/s\t{:.2}", self.work.least(device) / seconds)
    }

    /// Prints the time of the cost model, and the schedules on request.
    pub fn plan(&self, target: Target, schedules: bool) -> Result<()> {
        let mut call = (self.open)(Device::cpu())?;
        let kernels = inspect(target, Subject::Plan, &mut call)?;
        let time: f64 = kernels.iter().map(|kernel| kernel.model).sum();
        println!("{}\t{time:.1} us by the model\t{} kernels", self.name, kernels.len());
        for kernel in kernels.iter().filter(|_| schedules) {
            println!("{}\n{}", kernel.name, kernel.schedule);
        }
        Ok(())
    }

    /// Prints the notes of ptxas on each kernel.
    pub fn assemble(&self, target: Target) -> Result<()> {
        let mut call = (self.open)(Device::cpu())?;
        for kernel in inspect(target, Subject::Code, &mut call)? {
            println!("{}\t{}\t{}", self.name, kernel.name, assembled::notes(&kernel.ptx, target)?);
        }
        Ok(())
    }
}

fn micros(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}
