//! Programs that failed properties print. `CUTLET_BLESS=1 cargo test --test properties` writes the
//! file.

use cutlet as ct;

use super::*;

pub fn below_diagonal_1005ac4a0473ff8f() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let a = device.full([1, 1], 1.0f32)?;
    let mut b = device.full([1, 1], f32::NAN)?;
    ct::Launch::new([1, 1, 1]).launch(below_diagonal, (&a, &mut b))?;
    assert!((f64::from(b.to_vec()?[0]) - 1.0).abs() <= 1.52587890625e-5);
    Ok(())
}

pub fn lost_96624dc50e13d91c() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let a = device.full([17], 0i32)?;
    let mut b = device.full([1], 0i32)?;
    ct::Launch::new([2, 1, 1]).checks(ct::Checks::all()).launch(lost, (&a, &mut b))?;
    Ok(())
}

pub fn row_major_ba163511ba96f1fc() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let mut a = device.full([5, 3], ct::f16::NAN)?;
    a.view_mut().permute([1, 0])?.slice(0, 1..2)?.slice(1, 1..3)?.copy_from(&[ct::f16::from_f64(0.0); 2])?;
    let mut b = device.full([1, 2], ct::f16::NAN)?;
    ct::Launch::new([1, 1, 1]).launch(row_major, (ct::ByPointer(&a.view().permute([1, 0])?.slice(0, 1..2)?.slice(1, 1..3)?), &mut b))?;
    assert!((f64::from(b.to_vec()?[1]) - 0.0).abs() <= 0.001953125);
    Ok(())
}
