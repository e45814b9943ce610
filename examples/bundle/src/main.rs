//! Launches kernels that the build script has compiled: nothing is traced. `cargo run` in this
//! folder.

use cutlet::{Constant, Device};

fn main() -> anyhow::Result<()> {
    let kernels = cutlet::include_bundle!(concat!(env!("OUT_DIR"), "/kernels.bundle"))?;
    print!("{kernels}");
    let device = Device::first()?;
    for n in [100_000, 100_001] {
        let (x, mut y) = (device.full([n], 1.5f32)?, device.full([n], 1.0f32)?);
        kernels.launch("saxpy", n.div_ceil(1024), (2.0f32, &x, &mut y, Constant(1024usize)))?;
        anyhow::ensure!(y.to_vec()? == vec![4.0; n], "{n} elements");
    }
    println!("saxpy: right on {}", device.name());
    Ok(())
}
