//! Tests of arrays and views of ndarray on the cpu device.

use ::ndarray::{Array1, Array2, Array3, Axis, arr1, arr2, s};

use super::*;
use crate::element::{f4e2m1fn, f16};

fn double(x: crate::Array<i32, 2>, y: crate::ArrayMut<i32, 2>) {
    let at = [crate::bid(0), crate::bid(1)];
    y.store(at, x.load(at, [4, 4]) * 2);
}

#[test]
fn kernels_read_and_write_the_memory_of_views() -> Result<()> {
    let x = Array3::from_shape_fn((6, 7, 5), |(i, j, k)| (100 * i + 10 * j + k) as i32);
    let mut y = Array2::zeros((20, 20));
    let (from, to) = (x.slice(s![1..;2, .., 3]), y.slice_mut(s![2..9, 1..;6]));
    let expected = &from * 2;
    let (given, mut to) = (from, to.reversed_axes());
    crate::launch(double, [1, 2], (read(&given)?.view(), write(&mut to)?.view_mut()))?;
    assert_eq!(to.slice(s![..3, ..]), expected);
    assert_eq!(y.iter().filter(|&&value| value != 0).count(), expected.len());
    Ok(())
}

#[test]
fn halves_of_one_array_are_separate() -> Result<()> {
    let mut x = Array2::from_shape_fn((4, 6), |(i, j)| (i * 6 + j) as i32);
    let (mut left, mut right) = x.view_mut().split_at(Axis(1), 2);
    let (left, mut right) = (write::<_, _, 2>(&mut left)?, write::<_, _, 2>(&mut right)?);
    let mut left = left;
    left.view_mut().copy_from(&[0; 8])?;
    assert_eq!(right.view_mut().to_vec()?[..4], [2, 3, 4, 5]);
    right.view_mut().copy_from(&[1; 16])?;
    assert_eq!(x.sum(), 16);
    Ok(())
}

#[test]
fn copies_keep_the_order_in_memory() -> Result<()> {
    let device = Device::cpu();
    let x = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| f16::from_f32((12 * i + 4 * j + k) as f32));
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let view = x.view().permuted_axes(order);
        let a = array::<_, _, 3>(device, &view)?;
        assert_eq!(a.strides().map(|n| n as isize), view.strides());
        assert_eq!(a.to_vec()?, view.iter().copied().collect::<Vec<_>>());
        let back = to_array(&a.view())?;
        assert_eq!((back.view(), back.strides()), (view.view(), view.strides()));
    }
    let gaps = array::<_, _, 3>(device, &x.slice(s![.., ..;2, 1..]))?;
    assert_eq!((gaps.shape(), gaps.strides()), ([2, 2, 3], [6, 3, 1]));
    assert_eq!(to_array(&gaps.step(2, 2)?)?, x.slice(s![.., ..;2, 1..;2]));
    let backwards = arr1(&[1, 2, 3]);
    assert_eq!(array::<_, _, 1>(device, &backwards.slice(s![..;-1]))?.to_vec()?, [3, 2, 1]);
    Ok(())
}

#[test]
fn views_of_the_cpu_device_are_views_of_ndarray() -> Result<()> {
    let mut a = Device::cpu().array(&(0..24).collect::<Vec<i32>>(), [4, 6])?;
    view_mut(a.view_mut().slice(1, 2..4)?)?.fill(0);
    assert_eq!(view(&a)?.sum_axis(Axis(0)), arr1(&[36, 40, 0, 0, 52, 56]));
    assert_eq!(view(a.transpose()?)?.shape(), [6, 4]);
    let (mut low, _) = a.split_at_mut(0, 1)?;
    view_mut(low.reborrow())?.fill(7);
    assert_eq!(view(low.as_view())?, arr2(&[[7; 6]]));
    let empty = Device::cpu().zeros::<f64, 2>([0, 3])?;
    assert_eq!(view(&empty)?.shape(), [0, 3]);
    assert_eq!(read::<_, _, 2>(&Array2::<f64>::zeros((0, 3)))?.view().shape(), [0, 3]);
    Ok(())
}

#[test]
fn unsupported_arrays_are_errors() {
    let x = arr1(&[1, 2, 3]);
    let says = |error: Error, part: &str| assert!(error.to_string().contains(part), "{error}");
    says(read::<_, _, 2>(&x).unwrap_err(), "has 1 axes, not 2");
    says(array::<_, _, 2>(Device::cpu(), &x).unwrap_err(), "has 1 axes, not 2");
    says(read::<_, _, 1>(&x.slice(s![..;-1])).unwrap_err(), "no negative strides");
    says(read::<_, _, 2>(&x.broadcast((2, 3)).unwrap()).unwrap_err(), "elements in one place");
    says(read::<_, _, 1>(&Array1::from_elem(3, f4e2m1fn::from_bits(1))).unwrap_err(), "share a byte");
}
