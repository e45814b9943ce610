//! Program that depends on cutlet and on cudarc with any linkage: passes memory of cudarc to a
//! kernel.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use cutlet as ct;
use cutlet::foreign::cudarc::{array, lend, read, slice, stream, with, write};
use cutlet::prelude::*;

fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let x = x.load(ct::bid(0), [256]);
    y.store(ct::bid(0), x + x);
}

fn on_a_gpu(theirs: &Arc<CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
    let x = theirs.clone_htod(&[1.5f32; 1000])?;
    let mut y = theirs.alloc_zeros::<f32>(1000)?;
    with(theirs, (read(&x, [1000])?, write(&mut y, [1000])?), |stream, (x, y)| {
        ct::Launch::new(4).stream(stream).launch(double, (x, y))
    })?;
    let ours = stream(theirs)?;
    let mut z = theirs.alloc_zeros::<f32>(1000)?;
    ct::Launch::new(4).stream(&ours).launch(double, (&y, &mut z))?;
    assert_eq!(theirs.clone_dtoh(&z)?, [6.0; 1000]);
    let y = array(y, [10, 100])?;
    let copy = lend(&y, theirs, |view| theirs.clone_dtod(&view))??;
    assert_eq!(theirs.clone_dtoh(&copy)?, [3.0; 1000]);
    assert_eq!(theirs.clone_dtoh(&slice(y, theirs)?)?, [3.0; 1000]);
    stream(theirs)?.synchronize()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", ct::doctor());
    if ct::Device::num_gpus() > 0 {
        return on_a_gpu(&CudaContext::new(0)?.new_stream()?);
    }
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([1000], 1.5f32)?, device.zeros([1000])?);
    ct::launch(double, 4, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, [3.0; 1000]);
    Ok(())
}
