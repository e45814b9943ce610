//! Temporary.
use cutlet as ct;
use cutlet_kernels::inspect::{Subject, inspect};
use cutlet_kernels::order::*;
fn main() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let n = 1 << 20;
    let (x, mut y) = (device.zeros::<u32,1>([n])?, device.zeros([n])?);
    let s = device.default_stream();
    let (lx, mut lv, mut lp) = (device.zeros::<f32,2>([4,131072])?, device.zeros([4,2048])?, device.zeros([4,2048])?);
    let k2 = inspect(ct::Target::SM_90A, Subject::Code, || top_k(&s, lx.view(), (lv.view_mut(), lp.view_mut()), Selected::Unsorted))?;
    std::fs::write("/tmp/order_topk.ptx", &k2[0].ptx).unwrap();
    let k = inspect(ct::Target::SM_90A, Subject::Code, || sort_keys(&s, x.view(), y.view_mut(), Direction::Ascending))?;
    for (i, k) in k.iter().enumerate() { std::fs::write(format!("/tmp/order_{i}.ptx"), &k.ptx).unwrap(); println!("{i} {}", k.name); }
    Ok(())
}
