//! Rows of products of e4m3 with scales of blocks of 128.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::matmul;

use crate::case::{Case, Open, difference, places, random};

const BLOCK: usize = 128;

fn narrow(x: Array<f32, 1>, y: ArrayMut<f8e4m3fn, 1>) {
    y.store(ct::bid(0), x.load(ct::bid(0), [4096]).cast::<f8e4m3fn>());
}

fn random_f8<const R: usize>(device: Device, seed: i32, shape: [usize; R]) -> ct::Result<DeviceArray<f8e4m3fn, R>> {
    let len: usize = shape.iter().product();
    let (x, mut y) = (random::<f32>(device, seed, len, 4.0)?, device.zeros([len])?);
    ct::Launch::new(len.div_ceil(4096)).stream(&device.default_stream()).launch(narrow, (&x, &mut y))?;
    let mut shaped = device.zeros(shape)?;
    shaped.view_mut().copy_from_array(&y.view().reshape(shape)?)?;
    Ok(shaped)
}

/// Operands, scales, and the result. The original has scales along the terms, ours across them.
struct Arrays {
    a: DeviceArray<f8e4m3fn, 2>,
    b: DeviceArray<f8e4m3fn, 3>,
    of_a: DeviceArray<f32, 2>,
    of_b: DeviceArray<f32, 3>,
    rows: DeviceArray<f32, 2>,
    columns: DeviceArray<f32, 3>,
    starts: DeviceArray<i32, 1>,
    longest: DeviceArray<i32, 1>,
    y: DeviceArray<bf16, 2>,
}

/// Rows, columns and terms of the products of groups.
#[derive(Clone, Copy)]
struct Extents {
    groups: usize,
    each: usize,
    n: usize,
    k: usize,
}

impl Extents {
    fn m(self) -> usize {
        self.groups * self.each
    }

    /// First row of a group, and the end of the last one. Groups have different sizes.
    fn start(self, group: usize) -> usize {
        let more = if group % 2 == 1 { group / 2 * 37 % (self.each / 2) } else { 0 };
        group * self.each + if group < self.groups { more } else { 0 }
    }
}

impl Arrays {
    fn new(device: Device, of: Extents) -> ct::Result<Arrays> {
        let Extents { groups, n, k, .. } = of;
        let (m, blocks, across) = (of.m(), k.div_ceil(BLOCK), n.div_ceil(BLOCK));
        let (rows, columns) = ([m, blocks], [groups, across, blocks]);
        let of_a = device.from_fn(rows, |[i, j]| 0.5 + ((i * 31 + j * 7) % 64) as f32 / 64.0)?;
        let of_b = device.from_fn(columns, |[g, i, j]| 0.5 + ((g * 5 + i * 17 + j * 3) % 32) as f32 / 32.0)?;
        let (mut of_rows, mut of_columns) = (device.zeros([blocks, m])?, device.zeros([groups, blocks, across])?);
        of_rows.view_mut().copy_from_array(&of_a.view().transpose()?)?;
        of_columns.view_mut().copy_from_array(&of_b.view().permute([0, 2, 1])?)?;
        let longest = (0..groups).map(|group| of.start(group + 1) - of.start(group)).max().unwrap_or(0);
        Ok(Arrays {
            a: random_f8(device, 1, [m, k])?,
            b: random_f8(device, 2, [groups, n, k])?,
            of_a,
            of_b,
            rows: of_rows,
            columns: of_columns,
            starts: device.from_fn([groups + 1], |[group]| of.start(group) as i32)?,
            longest: device.full([1], longest as i32)?,
            y: device.zeros([m, n])?,
        })
    }

    fn addresses(&self) -> HashMap<&'static str, u64> {
        HashMap::from([
            ("a", self.a.view().address()),
            ("b", self.b.view().address()),
            ("of_a", self.of_a.view().address()),
            ("of_b", self.of_b.view().address()),
            ("starts", self.starts.view().address()),
            ("most", self.longest.view().address()),
            ("y", self.y.view().address()),
        ])
    }

    fn error(&self, of: Extents) -> ct::Result<f64> {
        let Extents { groups, n, k, .. } = of;
        let mut worst = 0.0f64;
        for row in places(of.m()) {
            let group = (0..groups).rev().find(|&group| of.start(group) <= row).unwrap_or(0);
            let of_row = |x: Vec<f8e4m3fn>| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
            let a = of_row(self.a.view().slice(0, row..row + 1)?.to_vec()?);
            let scales = self.of_a.view().slice(0, row..row + 1)?.to_vec()?;
            for first in [0, n - 16] {
                let b = self.b.view().slice(0, group..group + 1)?.slice(1, first..first + 16)?;
                let across = self.of_b.view().slice(0, group..group + 1)?.slice(1, first / BLOCK..first / BLOCK + 1)?;
                let (b, across) = (of_row(b.to_vec()?), across.to_vec()?);
                let dot = |j: usize| {
                    let term = |t: usize| a[t] * b[j * k + t] * f64::from(scales[t / BLOCK] * across[t / BLOCK]);
                    (0..k).map(term).sum::<f64>()
                };
                let want: Vec<f64> = (0..16).map(dot).collect();
                let result = self.y.view().slice(0, row..row + 1)?.slice(1, first..first + 16)?.to_vec()?;
                let result: Vec<f64> = result.iter().map(|x| x.to_f64()).collect();
                worst = worst.max(difference(&result, &want));
            }
        }
        Ok(worst)
    }
}

/// A row of the products of groups, or of one product.
fn of_products(name: String, of: Extents, is_grouped: bool) -> Case {
    let open = move |device: Device| {
        let stream = device.default_stream();
        let arrays = Rc::new(RefCell::new(Arrays::new(device, of)?));
        let addresses = arrays.borrow().addresses();
        let [first, second, third] = [(); 3].map(|()| arrays.clone());
        let ours = move || {
            let Arrays { a, b, rows, columns, starts, y, .. } = &mut *first.borrow_mut();
            let (rows, b) = ((a.view(), rows.view()), b.view().permute([0, 2, 1])?);
            if is_grouped {
                let columns = (b, columns.view());
                return matmul().launch_scaled_grouped(&stream, rows, columns, starts.view(), y.view_mut());
            }
            let columns =
                (b.reshape([of.k, of.n])?, columns.view().reshape([of.k.div_ceil(BLOCK), of.n.div_ceil(BLOCK)])?);
            matmul().launch_scaled(&stream, rows, columns, y.view_mut())
        };
        Ok(Open {
            arrays: addresses,
            ours: Box::new(ours),
            reset: Box::new(move || {
                let y = &mut second.borrow_mut().y;
                *y = device.full(y.shape(), bf16::from_f64(f64::NAN))?;
                Ok(())
            }),
            error: Box::new(move || third.borrow().error(of)),
        })
    };
    Case::opened(name, 8e-3, [0.0, 2.0 * (of.m() * of.n * of.k) as f64], open)
}

fn of_scaled(prefix: &str, [m, n, k]: [usize; 3]) -> Case {
    of_products(format!("{prefix} e4m3 {m} {n} {k}"), Extents { groups: 1, each: m, n, k }, false)
}

fn of_groups(of: Extents) -> Case {
    let Extents { groups, n, k, .. } = of;
    of_products(format!("scaled products of groups e4m3 {groups} {} {n} {k}", of.m()), of, true)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_scaled("scaled product", [48, 160, 256]), of_groups(Extents { groups: 3, each: 40, n: 144, k: 256 })]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![
        of_scaled("scaled product", [4096, 7168, 2048]),
        of_scaled("scaled product", [64, 7168, 2048]),
        of_scaled("FlashInfer's scaled product", [4096, 4096, 7168]),
        of_groups(Extents { groups: 32, each: 512, n: 4096, k: 2048 }),
    ]
}
