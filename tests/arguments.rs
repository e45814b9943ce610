//! Arguments of launches and parameters of kernels: lists, structs, literals, and arguments of the
//! user's own.

use cutlet as ct;
use cutlet::kernel::{IntoKernelArg, Kernel};
use cutlet::prelude::*;
use cutlet::{DeviceArray, Result};

fn device() -> ct::Device {
    ct::Device::cpu()
}

struct Norm<X, W, E, C> {
    x: X,
    weight: W,
    eps: E,
    tile: C,
}
ct::impl_kernel_args!(Norm<X, W, E, C> { x, weight, eps, tile });

fn scale(p: Norm<Array<f32, 2>, Array<f16, 1>, Scalar<f32>, usize>, out: ArrayMut<f32, 2>) {
    let x = p.x.load((ct::bid(0), 0), [1, p.tile]);
    out.store((ct::bid(0), 0), x * p.weight.load(0, [p.tile]).cast::<f32>().unsqueeze(0) + p.eps);
}

#[test]
fn structs_arrive() -> Result<()> {
    let (x, w) = (device().full([4, 8], 2.0)?, device().full([8], f16::from_f32(0.5))?);
    let mut out = device().zeros([4, 8])?;
    ct::launch(scale, 4, (Norm { x: &x, weight: &w, eps: 1.0, tile: ct::Constant(8) }, &mut out))?;
    assert_eq!(out.to_vec()?, [2.0; 32]);
    let args = Norm { x: x.view(), weight: &w.view(), eps: 2.0, tile: ct::Constant(4) };
    let compiled = ct::compile(scale, (args, &mut out))?;
    compiled.launch(4, (Norm { x: &x, weight: &w, eps: 3.0, tile: ct::Constant(4) }, &mut out))?;
    assert_eq!(out.to_vec()?[..8], [4.0, 4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0]);
    assert!(compiled.launch(4, (Norm { x: &x, weight: &w, eps: 3.0, tile: ct::Constant(8) }, &mut out)).is_err());
    Ok(())
}

fn sum(parts: Vec<(Array<f32, 1>, Scalar<i32>)>, pair: [Array<f32, 1>; 2], out: ArrayMut<f32, 1>) {
    let mut acc = pair[0].load(0, [8]) - pair[1].load(0, [8]);
    for (a, n) in parts {
        acc += a.load(0, [8]) * n.cast::<f32>();
    }
    out.store(0, acc);
}

#[test]
fn lists_arrive() -> Result<()> {
    let [a, b]: [DeviceArray<f32, 1>; 2] = [device().full([8], 1.0)?, device().full([8], 10.0)?];
    let mut out = device().zeros([8])?;
    for (parts, expected) in [(vec![], -9.0), (vec![(&a, 2)], -7.0), (vec![(&b, 3), (&a, 4), (&b, 5)], 75.0)] {
        ct::launch(sum, 1, (parts, [&a, &b], &mut out))?;
        assert_eq!(out.to_vec()?, [expected; 8]);
    }
    let compiled = ct::compile(sum, (vec![(&a, 0)], [&a, &b], &mut out))?;
    assert!(compiled.launch(1, (vec![(&a, 0); 2], [&a, &b], &mut out)).is_err(), "another length is another kernel");
    let most: Vec<_> = (0..40).map(|n| (&a, n)).collect();
    ct::launch(sum, 1, (most, [&a, &a], &mut out))?;
    assert_eq!(out.to_vec()?, [780.0; 8]);
    Ok(())
}

fn scaled<T: Number>(a: Array<T, 1>, by: Scalar<T>, b: ArrayMut<T, 1>) {
    b.store(0, a.load(0, [8]) * by);
}

#[test]
fn literals_have_the_type_of_the_kernel() -> Result<()> {
    let (a, mut b) = (device().full([8], 3.0)?, device().zeros([8])?);
    ct::launch(scaled::<f32>, 1, (&a, 0.5, &mut b))?;
    assert_eq!(b.to_vec()?, [1.5; 8]);
    let (a, mut b) = (device().full([8], f16::from_f32(3.0))?, device().zeros([8])?);
    ct::launch(scaled, 1, (&a, 0.1, &mut b))?;
    let expected = f16::from_f32(3.0f32 * f16::from_f64(0.1).to_f32());
    assert_eq!(b.to_vec()?, [expected; 8]);
    ct::launch(scaled, 1, (&a, f16::from_f32(2.0), &mut b))?;
    assert_eq!(b.to_vec()?, [f16::from_f32(6.0); 8]);
    let (a, mut b) = (device().full([8], 3i64)?, device().zeros([8])?);
    ct::launch(scaled, 1, (&a, 1 << 40, &mut b))?;
    assert_eq!(b.to_vec()?, [3i64 << 40; 8]);
    Ok(())
}

/// Arrives as a pair, in one order or the other, and with the number before or after the array.
struct Pair<'a, const SWAPPED: bool>(&'a DeviceArray<f32, 1>, &'a DeviceArray<f32, 1>);
struct Numbered<'a>(f32, &'a DeviceArray<f32, 1>);

type Two = (Array<f32, 1>, Array<f32, 1>);

impl<'a, const SWAPPED: bool> IntoKernelArg<Two> for Pair<'a, SWAPPED> {
    type Arg = (&'a DeviceArray<f32, 1>, &'a DeviceArray<f32, 1>);
    fn into_arg(self) -> Self::Arg {
        (self.0, self.1)
    }
    fn from_traced((a, b): Two) -> Two {
        if SWAPPED { (b, a) } else { (a, b) }
    }
}

impl<'a> IntoKernelArg<(Array<f32, 1>, Scalar<f32>)> for Numbered<'a> {
    type Arg = (f32, &'a DeviceArray<f32, 1>);
    fn into_arg(self) -> Self::Arg {
        (self.0, self.1)
    }
    fn from_traced((n, a): (Scalar<f32>, Array<f32, 1>)) -> (Array<f32, 1>, Scalar<f32>) {
        (a, n)
    }
}

fn difference((a, b): Two, out: ArrayMut<f32, 1>) {
    out.store(0, a.load(0, [8]) - b.load(0, [8]));
}

fn product((a, n): (Array<f32, 1>, Scalar<f32>), out: ArrayMut<f32, 1>) {
    out.store(0, a.load(0, [8]) * n);
}

/// Types with the same parameters in another order are different kernels.
#[test]
fn own_arguments_are_told_apart() -> Result<()> {
    let [a, b]: [DeviceArray<f32, 1>; 2] = [device().full([8], 5.0)?, device().full([8], 3.0)?];
    let mut out = device().zeros([8])?;
    for _ in 0..2 {
        ct::launch(difference, 1, ((&a, &b), &mut out))?;
        assert_eq!(out.to_vec()?, [2.0; 8]);
        ct::launch(difference, 1, (Pair::<true>(&a, &b), &mut out))?;
        assert_eq!(out.to_vec()?, [-2.0; 8]);
        ct::launch(difference, 1, (Pair::<false>(&a, &b), &mut out))?;
        assert_eq!(out.to_vec()?, [2.0; 8]);
        ct::launch(product, 1, ((&a, 2.0), &mut out))?;
        assert_eq!(out.to_vec()?, [10.0; 8]);
        ct::launch(product, 1, (Numbered(4.0, &a), &mut out))?;
        assert_eq!(out.to_vec()?, [20.0; 8]);
    }
    let compiled = ct::compile(product, ((&a, 2.0), &mut out))?;
    assert!(compiled.launch(1, (Numbered(4.0, &a), &mut out)).is_err());
    Ok(())
}

struct Plus<const N: u32>(Array<f32, 1>, ArrayMut<f32, 1>);

/// A kernel without size that takes parameters of several types.
#[derive(Clone, Copy)]
struct Add;

impl<const N: u32> Kernel<(Plus<N>,)> for Add {
    fn call(&self, (Plus(x, y),): (Plus<N>,)) {
        y.store(0, x.load(0, [8]) + N as f32);
    }
}

struct Any<'a>(&'a DeviceArray<f32, 1>, &'a mut DeviceArray<f32, 1>);

impl<'a, const N: u32> IntoKernelArg<Plus<N>> for Any<'a> {
    type Arg = (&'a DeviceArray<f32, 1>, &'a mut DeviceArray<f32, 1>);
    fn into_arg(self) -> Self::Arg {
        (self.0, self.1)
    }
    fn from_traced((x, y): (Array<f32, 1>, ArrayMut<f32, 1>)) -> Plus<N> {
        Plus(x, y)
    }
}

/// Code belongs to the types of the parameters, too: neither kernel nor arguments determine them.
#[test]
fn parameters_of_several_types_are_told_apart() -> Result<()> {
    let x = device().full([8], 1.0)?;
    let mut y = device().zeros([8])?;
    ct::launch::<_, _, (Plus<1>,)>(Add, 1, (Any(&x, &mut y),))?;
    assert_eq!(y.to_vec()?, [2.0; 8]);
    ct::launch::<_, _, (Plus<100>,)>(Add, 1, (Any(&x, &mut y),))?;
    assert_eq!(y.to_vec()?, [101.0; 8]);
    Ok(())
}

struct Reordered<X, W> {
    x: X,
    weight: W,
}
ct::impl_kernel_args!(Reordered<X, W> { x, weight });

struct Ordered<X, W> {
    x: X,
    weight: W,
}
ct::impl_kernel_args!(Ordered<X, W> { x, weight });

/// A kernel over structs whose fields have the same types.
#[derive(Clone, Copy)]
struct Less;

impl Kernel<(Ordered<Array<f32, 1>, Array<f32, 1>>, ArrayMut<f32, 1>)> for Less {
    fn call(&self, (p, out): (Ordered<Array<f32, 1>, Array<f32, 1>>, ArrayMut<f32, 1>)) {
        out.store(0, p.x.load(0, [8]) - p.weight.load(0, [8]));
    }
}

impl Kernel<(Reordered<Array<f32, 1>, Array<f32, 1>>, ArrayMut<f32, 1>)> for Less {
    fn call(&self, (p, out): (Reordered<Array<f32, 1>, Array<f32, 1>>, ArrayMut<f32, 1>)) {
        out.store(0, p.weight.load(0, [8]) - p.x.load(0, [8]));
    }
}

#[test]
fn structs_with_the_same_fields_are_told_apart() -> Result<()> {
    let [a, b]: [DeviceArray<f32, 1>; 2] = [device().full([8], 5.0)?, device().full([8], 3.0)?];
    let mut out = device().zeros([8])?;
    ct::launch(Less, 1, (Ordered { x: &a, weight: &b }, &mut out))?;
    assert_eq!(out.to_vec()?, [2.0; 8]);
    ct::launch(Less, 1, (Reordered { x: &a, weight: &b }, &mut out))?;
    assert_eq!(out.to_vec()?, [-2.0; 8]);
    Ok(())
}
