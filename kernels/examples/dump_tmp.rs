//! Temporary.
use cutlet as ct;
use cutlet_kernels::inspect::{Subject, inspect};
use cutlet_kernels::order::*;
fn main() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let n = 1 << 20;
    let (x, mut y) = (device.zeros::<u32, 1>([n])?, device.zeros([n])?);
    let s = device.default_stream();
    let k = inspect(ct::Target::SM_90A, Subject::Code, || sort_keys(&s, x.view(), y.view_mut(), Direction::Ascending))?;
    for (i, k) in k.iter().enumerate() {
        std::fs::write(format!("/tmp/order_{i}.ptx"), &k.ptx).unwrap();
        println!("{i} {}", k.name);
    }
    Ok(())
}
