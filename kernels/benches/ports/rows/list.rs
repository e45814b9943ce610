//! The row of a product with the arrays of peers, which are a list. All of them are on one GPU.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::prelude::*;
use cutlet::{Arrays, Device, DeviceArray};

use crate::case::{Case, Open, difference, places, random};

/// The product of the rows of all peers with one matrix: a tile has rows of one peer.
fn product(peers: Arrays<bf16, 2>, w: Array<bf16, 2>, y: ArrayMut<bf16, 2>, [tm, tn, tk]: [usize; 3]) {
    let tiles = peers.get(0).num_tiles(0, [tm, tk]);
    let [i, j] = ct::swizzle_2d(ct::bid(0), y.num_tiles(0, [tm, tn]), y.num_tiles(1, [tm, tn]), 8);
    let peer = peers.get(i / tiles);
    let sums = ct::fold(..w.num_tiles(0, [tk, tn]), ct::zeros::<f32, 2>([tm, tn]), |sums, k| {
        ct::mma(peer.load((i % tiles, k), [tm, tk]), w.load((k, j), [tk, tn]), sums)
    });
    y.store((i, j), sums.cast::<bf16>());
}

fn of_list(peers: usize, [m, n, k]: [usize; 3], tile: [usize; 3]) -> Case {
    let open = move |device: Device| {
        let matrix = |seed, rows: usize, columns: usize| {
            let (x, mut y) = (random::<bf16>(device, seed, rows * columns, 1.0)?, device.zeros([rows, columns])?);
            y.view_mut().copy_from_array(&x.view().reshape([rows, columns])?)?;
            Ok::<DeviceArray<bf16, 2>, ct::Error>(y)
        };
        let all: ct::Result<Vec<_>> = (0..peers).map(|peer| matrix(peer as i32, m, k)).collect();
        // The table borrows the arrays until the end of the program.
        let all: &'static [DeviceArray<bf16, 2>] = all?.leak();
        let table = ct::ArrayTable::new(&all.iter().collect::<Vec<_>>())?;
        // A word for the address of an array, for each extent, and for each stride.
        let words: Vec<i64> =
            all.iter().flat_map(|array| [array.view().address() as i64, m as i64, k as i64, k as i64, 1]).collect();
        let words = device.array(&words, [words.len()])?;
        let (w, y) = (Rc::new(matrix(99, k, n)?), Rc::new(RefCell::new(device.zeros::<bf16, 2>([peers * m, n])?)));
        let arrays = HashMap::from([
            ("words", words.view().address()),
            ("w", w.view().address()),
            ("y", y.borrow().view().address()),
        ]);
        let [first, second, third] = [(); 3].map(|()| (w.clone(), y.clone()));
        let blocks = (peers * m).div_ceil(tile[0]) * n.div_ceil(tile[1]);
        Ok(Open {
            arrays,
            ours: Box::new(move || {
                let (w, y) = (&*first.0, &mut *first.1.borrow_mut());
                let stream = device.default_stream();
                ct::Launch::new(blocks).stream(&stream).launch(product, (&table, w, y, ct::Constant(tile)))
            }),
            reset: Box::new(move || {
                // The list of the original lives as long as the row.
                let _ = &words;
                let y = &mut *second.1.borrow_mut();
                let poison = device.full(y.shape(), bf16::from_f64(f64::NAN))?;
                y.view_mut().copy_from_array(&poison.view())
            }),
            error: Box::new(move || {
                let mut worst = 0.0f64;
                let row = |x: Vec<bf16>| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
                for at in places(peers * m) {
                    let x = row(all[at / m].view().slice(0, at % m..at % m + 1)?.to_vec()?);
                    for first in [0, n - 16] {
                        let w = row(third.0.view().slice(1, first..first + 16)?.to_vec()?);
                        let y = third.1.borrow().view().slice(0, at..at + 1)?.slice(1, first..first + 16)?.to_vec()?;
                        let dot = |j: usize| x.iter().enumerate().map(|(l, x)| x * w[l * 16 + j]).sum::<f64>();
                        worst = worst.max(difference(&row(y), &(0..16).map(dot).collect::<Vec<f64>>()));
                    }
                }
                Ok(worst)
            }),
        })
    };
    let name = format!("product of a list bf16 {peers} {m} {n} {k}");
    Case::opened(name, 8e-3, [0.0, 2.0 * (peers * m * n * k) as f64], open)
}

/// The row at a size for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_list(3, [32, 48, 64], [16, 16, 32])]
}

/// The row.
pub fn cases() -> Vec<Case> {
    vec![of_list(8, [1024, 4096, 4096], [128, 256, 64])]
}
